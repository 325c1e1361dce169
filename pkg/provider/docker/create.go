package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry"
	"github.com/nstance/nstance/pkg/retry"
)

// Create implements provider.Provider. A container that was created but never started is
// started; one that ended is returned as it is. Spec.Arch and Spec.InstanceType are ignored,
// and so is Spec.Userdata except for nodes.
func (p *Provider) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	if err := spec.Check(p.cfg.Scope); err != nil {
		return provider.VM{}, err
	}
	r, err := p.cfg.render(spec)
	if err != nil {
		return provider.VM{}, err
	}
	found, err := p.claim(ctx, spec, r)
	if err != nil {
		return provider.VM{}, err
	}
	if !p.cfg.owns(found.Config.Labels) || provider.TaggedID(found.Config.Labels) != spec.ID {
		return provider.VM{}, fmt.Errorf("%w: the name %s is taken by a container that is not ours", provider.ErrInvalid, nameOf(spec.ID))
	}
	if found.State.Status != container.StateCreated {
		return inspected(found), nil
	}
	return p.complete(ctx, spec, r.files, found.ID)
}

// The engine reserves a name slightly before its container becomes visible, for about a tenth
// of a second.
const (
	nameRetry    = 10 * time.Millisecond
	nameAttempts = 500
)

// claim returns the container with the instance's name: a new one, or an existing one, for
// which no image is needed.
func (p *Provider) claim(ctx context.Context, spec provider.Spec, r request) (container.InspectResponse, error) {
	if !p.cfg.asks() {
		found, err := p.claimNow(ctx, spec, r)
		if !errors.Is(err, errNoImage) || p.cfg.Pull == PullNever || !registry.Hosted(r.config.Image) {
			return found, err
		}
		return p.claimPulled(ctx, spec, r)
	}
	found, err := p.api.ContainerInspect(ctx, nameOf(spec.ID))
	if errdefs.IsNotFound(err) {
		return p.claimPulled(ctx, spec, r)
	}
	if err != nil {
		return found, fmt.Errorf("inspect container of instance %s: %w", spec.ID, unreached(err))
	}
	if found.State.Status != container.StateCreated || !p.cfg.owns(found.Config.Labels) {
		return found, nil
	}
	trusted, err := p.images.trusts(ctx, found.Config.Image)
	if err != nil {
		return found, fmt.Errorf("verify the image of instance %s: %w", spec.ID, err)
	}
	if trusted {
		return found, nil
	}
	// Created before images had to be signed, and never started.
	if err := provider.Permit(ctx); err != nil {
		return found, err
	}
	err = p.api.ContainerRemove(ctx, found.ID, container.RemoveOptions{RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return found, fmt.Errorf("remove container of instance %s, whose image is not signed: %w", spec.ID, err)
	}
	return p.claimPulled(ctx, spec, r)
}

// claimPulled pulls the image first.
func (p *Provider) claimPulled(ctx context.Context, spec provider.Spec, r request) (none container.InspectResponse, err error) {
	r.config.Image, err = p.images.ready(ctx, r.config.Image)
	if err != nil {
		return none, fmt.Errorf("create container of instance %s: %w", spec.ID, err)
	}
	found, err := p.claimNow(ctx, spec, r)
	if errors.Is(err, errNoImage) {
		return none, errors.New(err.Error()) // removed meanwhile: no kind, so that the next create pulls it again
	}
	return found, err
}

// claimNow creates the container from an image that the engine has.
func (p *Provider) claimNow(ctx context.Context, spec provider.Spec, r request) (container.InspectResponse, error) {
	for attempt := 1; ; attempt++ {
		found, err := p.attempt(ctx, spec, r)
		if !errors.Is(err, errNameKept) || attempt == nameAttempts {
			return found, err
		}
		if retry.Wait(ctx, nameRetry) != nil {
			return container.InspectResponse{}, ctx.Err()
		}
	}
}

var errNameKept = errors.New("the name is reserved by a container that is not visible yet")

func (p *Provider) attempt(ctx context.Context, spec provider.Spec, r request) (none container.InspectResponse, err error) {
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := provider.Permit(ctx); err != nil {
		return none, err
	}
	_, createErr := p.api.ContainerCreate(ctx, r.config, r.host, nil, nil, nameOf(spec.ID))
	if createErr != nil && !answered(createErr) {
		return none, fmt.Errorf("create container of instance %s: %w", spec.ID, unreached(createErr))
	}
	// Also after a refusal: an earlier create of this ID may have succeeded.
	found, err := p.api.ContainerInspect(ctx, nameOf(spec.ID))
	switch {
	case err == nil:
		return found, nil
	case !errdefs.IsNotFound(err) || createErr == nil: // created and already gone
		return none, fmt.Errorf("inspect container of instance %s: %w", spec.ID, err)
	case errdefs.IsConflict(createErr):
		return none, fmt.Errorf("create container of instance %s: %w", spec.ID, errNameKept)
	default:
		return none, fmt.Errorf("create container of instance %s: %w", spec.ID, refused(createErr, r.config.Image))
	}
}

// complete performs the remaining steps for a created container, all of which are repeatable.
func (p *Provider) complete(ctx context.Context, spec provider.Spec, where bootstrap, id string) (provider.VM, error) {
	if err := provider.Permit(ctx); err != nil {
		return provider.VM{}, err
	}
	files, err := where.pack(spec)
	if err != nil {
		return provider.VM{}, fmt.Errorf("pack files of instance %s: %w", spec.ID, err)
	}
	if err := p.api.CopyToContainer(ctx, id, where.into, files, container.CopyToContainerOptions{}); err != nil {
		return provider.VM{}, p.abandon(ctx, spec, id, fmt.Errorf("copy files to instance %s: %w", spec.ID, uncopied(err)))
	}
	if err := provider.Permit(ctx); err != nil {
		return provider.VM{}, err
	}
	if err := p.api.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return provider.VM{}, p.abandon(ctx, spec, id, fmt.Errorf("start container of instance %s: %w", spec.ID, unstartable(err)))
	}
	found, err := p.api.ContainerInspect(ctx, id)
	if err != nil {
		return provider.VM{}, fmt.Errorf("inspect container of instance %s: %w", spec.ID, err)
	}
	return inspected(found), nil
}

// abandon removes a container that can't be completed; the error is definite only once it is
// gone. It leaves a container whose next step may succeed.
func (p *Provider) abandon(ctx context.Context, spec provider.Spec, id string, err error) error {
	if !provider.Definite(err) {
		return err
	}
	if refusal := provider.Permit(ctx); refusal != nil {
		return fmt.Errorf("%s; remove it: %w", err.Error(), refusal) // no kind: the container is left
	}
	// The shard's other server may have started it meanwhile; then the engine refuses to remove
	// it without force.
	if left := p.api.ContainerRemove(ctx, id, container.RemoveOptions{RemoveVolumes: true}); left != nil && !errdefs.IsNotFound(left) {
		p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "removing an incomplete container failed",
			slog.String("instance", string(spec.ID)), slog.Any("error", left))
		return errors.New(err.Error()) // no kind: the container is left
	}
	return err
}

// pack packs the files for the agent's first call and the folders it writes to, owned by the
// agent.
func (b bootstrap) pack(spec provider.Spec) (*bytes.Buffer, error) {
	entries := agentDirs(b.prefix, b.user)
	contents := map[string][]byte{}
	add := func(name string, mode int64, content []byte) {
		contents[b.prefix+name] = content
		entries = append(entries, tar.Header{
			Name: b.prefix + name, Mode: mode, Typeflag: tar.TypeReg, Size: int64(len(content)), Uid: b.user, Gid: b.user,
		})
	}
	add("identity/ca.crt", 0o600, spec.Bootstrap.CACert)
	add("identity/nonce.jwt", 0o600, []byte(spec.Bootstrap.Nonce))
	if b.node {
		add("userdata", 0o700, spec.Userdata)
	}
	return pack(entries, contents)
}
