package docker

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/nstance/nstance/pkg/provider"
)

// atOnce is the concurrency of one Get or Delete: the engine has no batch calls.
const atOnce = 16

// Get implements provider.Provider.
func (p *Provider) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	return provider.GetEach(refs, atOnce, func(ref provider.Ref) (provider.VM, error) { return p.get(ctx, ref) })
}

func (p *Provider) get(ctx context.Context, ref provider.Ref) (provider.VM, error) {
	found, err := p.find(ctx, ref)
	if err != nil {
		return provider.VM{}, err
	}
	if len(found) == 0 {
		return provider.VM{}, fmt.Errorf("%w: instance %.80q, container %.80q", provider.ErrNotFound, ref.ID, ref.ProviderID)
	}
	return found[0], nil
}

// List implements provider.Provider. The engine has no pages: its answer is a single page.
func (p *Provider) List(ctx context.Context) ([]provider.VM, error) {
	vms, err := p.list(ctx, p.labelFilter())
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return vms, nil
}

// Delete implements provider.Provider. It returns when the engine has forcibly removed the
// containers.
func (p *Provider) Delete(ctx context.Context, refs []provider.Ref) []error {
	return provider.DeleteEach(refs, atOnce, func(ref provider.Ref) error { return p.remove(ctx, ref) })
}

func (p *Provider) remove(ctx context.Context, ref provider.Ref) error {
	found, err := p.find(ctx, ref)
	if err != nil {
		return err
	}
	for _, vm := range found {
		if err := provider.Permit(ctx); err != nil {
			return err
		}
		err := p.api.ContainerRemove(ctx, vm.ProviderID, container.RemoveOptions{Force: true, RemoveVolumes: true})
		// A conflict means that the container is already being removed.
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			return fmt.Errorf("delete container of instance %s: %w", vm.ID, kind(err))
		}
	}
	return nil
}

// find returns the VMs that ref matches, living ones first: one, unless another container has the
// same instance ID.
func (p *Provider) find(ctx context.Context, ref provider.Ref) ([]provider.VM, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := ref.Check(); err != nil {
		return nil, err
	}
	if ref.ProviderID == "" {
		vms, err := p.list(ctx, p.labelFilter(filters.Arg("label", provider.TagInstanceID+"="+string(ref.ID))))
		if err != nil {
			return nil, fmt.Errorf("find container of instance %s: %w", ref.ID, err)
		}
		if len(vms) > 0 {
			provider.SortLiving(vms)
			return vms, nil
		}
		// A list may briefly lack a container that exists; the name is authoritative.
		return p.inspect(ctx, ref, nameOf(ref.ID))
	}
	if !containerID.MatchString(ref.ProviderID) {
		return nil, nil
	}
	return p.inspect(ctx, ref, ref.ProviderID)
}

// inspect returns the container with an ID or name, if ref matches it.
func (p *Provider) inspect(ctx context.Context, ref provider.Ref, container string) ([]provider.VM, error) {
	found, err := p.api.ContainerInspect(ctx, container)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect container %s: %w", container, kindOfRead(err))
	}
	vm := inspected(found)
	if !p.cfg.Scope.Owns(vm.Tags) || !ref.Names(vm) {
		return nil, nil
	}
	if !p.cfg.owns(vm.Tags) {
		// It exists, so "not found" would be wrong: after a change of the option nothing counts as gone.
		return nil, fmt.Errorf("container %s of instance %s has the label %s=%q, but options.engine_scope is %q",
			container, vm.ID, labelEngineScope, vm.Tags[labelEngineScope], p.cfg.EngineScope)
	}
	return []provider.VM{vm}, nil
}

func (p *Provider) list(ctx context.Context, which filters.Args) ([]provider.VM, error) {
	summaries, err := p.api.ContainerList(ctx, container.ListOptions{All: true, Filters: which})
	if err != nil {
		return nil, kindOfRead(err)
	}
	vms := make([]provider.VM, 0, len(summaries))
	for _, s := range summaries {
		if !p.cfg.owns(s.Labels) {
			continue // no filter finds the absence of a label
		}
		vm := provider.VM{
			ProviderID: s.ID,
			State:      stateOf(s.State),
			Reason:     exitOf(s.Status),
			CreatedAt:  time.Unix(s.Created, 0).UTC(),
		}
		if s.NetworkSettings != nil {
			vm.Addresses = addresses(s.NetworkSettings.Networks)
		}
		vms = append(vms, labelled(vm, s.Labels))
	}
	provider.Sort(vms)
	return vms, nil
}

// kindOfRead wraps the error of a read in its kind; no read is permanently invalid.
func kindOfRead(err error) error {
	if errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err) {
		return fmt.Errorf("%w: %w", provider.ErrUnauthorized, err)
	}
	if errdefs.IsResourceExhausted(err) {
		return fmt.Errorf("%w: %w", provider.ErrThrottled, err)
	}
	return err
}

// owns reports whether labels are those of a container of this server.
func (cfg Config) owns(labels map[string]string) bool {
	return cfg.Scope.Owns(labels) && labels[labelEngineScope] == cfg.EngineScope
}

// labelFilter returns the filters of this scope's labels, and more.
func (p *Provider) labelFilter(more ...filters.KeyValuePair) filters.Args {
	return filters.NewArgs(append(more,
		filters.Arg("label", provider.TagManaged+"=true"),
		filters.Arg("label", provider.TagClusterID+"="+p.cfg.Scope.ClusterID),
		filters.Arg("label", provider.TagShard+"="+p.cfg.Scope.Shard),
	)...)
}

// inspected converts a container's full description.
func inspected(c container.InspectResponse) provider.VM {
	vm := provider.VM{ProviderID: c.ID, State: stateOf(c.State.Status)}
	if vm.State == provider.StateStopped {
		vm.Reason = ending(strconv.Itoa(c.State.ExitCode), c.State.OOMKilled, c.State.Error)
	}
	if at, err := time.Parse(time.RFC3339Nano, c.Created); err == nil {
		vm.CreatedAt = at.UTC()
	}
	if c.NetworkSettings != nil {
		vm.Addresses = addresses(c.NetworkSettings.Networks)
	}
	return labelled(vm, c.Config.Labels)
}

// labelled adds the fields that come from the labels.
func labelled(vm provider.VM, labels map[string]string) provider.VM {
	vm.Tags = maps.Clone(labels)
	vm.ID = provider.TaggedID(labels)
	vm.Hostname, vm.Subnet = labels[labelHostname], labels[labelSubnet]
	return vm
}

// ending describes why a container stopped.
func ending(exitCode string, outOfMemory bool, detail string) string {
	words := "exit code " + exitCode
	if outOfMemory {
		words += ", out of memory"
	}
	if detail != "" {
		words += ": " + detail
	}
	return words
}

var exitedPattern = regexp.MustCompile(`^Exited \((\d+)\)`)

// exitOf parses it from the status in a list, such as Exited (1) 2 minutes ago.
func exitOf(status string) string {
	m := exitedPattern.FindStringSubmatch(status)
	if m == nil {
		return ""
	}
	return ending(m[1], false, "")
}

func stateOf(s container.ContainerState) provider.State {
	switch s {
	case container.StateCreated, container.StateRestarting:
		return provider.StatePending
	case container.StateRunning, container.StatePaused: // a paused one may resume at any time
		return provider.StateRunning
	case container.StateRemoving:
		return provider.StateDeleting
	case container.StateExited, container.StateDead:
		return provider.StateStopped
	default:
		return provider.StateUnknown
	}
}

// addresses returns a container's addresses, ordered by network name.
func addresses(networks map[string]*network.EndpointSettings) []netip.Addr {
	var out []netip.Addr
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		for _, text := range []string{networks[name].IPAddress, networks[name].GlobalIPv6Address} {
			if addr, err := netip.ParseAddr(text); err == nil {
				out = append(out, addr)
			}
		}
	}
	return out
}
