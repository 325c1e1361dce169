package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/nstance/nstance/pkg/provider"
)

// Reload copies a binary into each running container of the scope, to its path in images of
// BuildAgentImage, and makes the agent exec it. The container stays the same, so its instance
// lives on: see docs/agent.md. It fails for containers created without Config.WritableRoot.
func (p *Provider) Reload(ctx context.Context, binary string) error {
	program, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reload agents: %w", err)
	}
	file := tar.Header{Name: agentPath[1:], Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(program))}
	archive, err := pack([]tar.Header{file}, map[string][]byte{file.Name: program})
	if err != nil {
		return fmt.Errorf("reload agents: %w", err)
	}
	vms, err := p.List(ctx)
	if err != nil {
		return fmt.Errorf("reload agents: %w", err)
	}
	var errs []error
	for _, vm := range vms {
		if vm.State != provider.StateRunning {
			continue
		}
		if err := p.reload(ctx, vm.ProviderID, archive.Bytes()); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			errs = append(errs, fmt.Errorf("reload the agent of instance %s: %w", vm.ID, err))
		}
	}
	return errors.Join(errs...)
}

func (p *Provider) reload(ctx context.Context, id string, archive []byte) error {
	err := p.api.CopyToContainer(ctx, id, "/", bytes.NewReader(archive), container.CopyToContainerOptions{})
	if err != nil && says(err, "read-only") {
		return fmt.Errorf("container was created without options.writable_root: %w", err)
	}
	if err != nil {
		return err
	}
	return p.api.ContainerKill(ctx, id, "SIGHUP")
}
