package docker

import (
	"context"
	"fmt"
	"io"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/nstance/nstance/pkg/provider"
)

// Logs copies what a container wrote and writes to w, until the container ends or ctx does.
func (p *Provider) Logs(ctx context.Context, vm provider.VM, w io.Writer) error {
	body, err := p.api.ContainerLogs(ctx, vm.ProviderID, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		return fmt.Errorf("read the logs of container %.12s: %w", vm.ProviderID, err)
	}
	defer body.Close()
	if _, err := stdcopy.StdCopy(w, w, body); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read the logs of container %.12s: %w", vm.ProviderID, err)
	}
	return nil
}
