package docker

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/nstance/nstance/pkg/provider"
)

// leaderNetwork moves the leader's address between the containers of a shard's servers: the
// container connected to the network with it holds it.
type leaderNetwork struct {
	p *Provider
	l Leader
}

var _ provider.LeaderNetwork = (*leaderNetwork)(nil)

// LeaderNetwork returns the leader network; ok is false if no leader address is configured.
func (p *Provider) LeaderNetwork() (ln provider.LeaderNetwork, ok bool) {
	return p.leader, p.leader != nil
}

// ServerLabels returns the labels that a server's container needs so that the shard's other
// servers can take the leader's address from it.
func ServerLabels(scope provider.Scope) map[string]string {
	return map[string]string{labelServer: "true", provider.TagClusterID: scope.ClusterID, provider.TagShard: scope.Shard}
}

// Check implements provider.LeaderNetwork.
func (n *leaderNetwork) Check(ctx context.Context) (bool, error) {
	self, err := n.self(ctx)
	return err == nil && n.holds(self.NetworkSettings.Networks), err
}

// self returns this server's container. It checks the labels, as another container may have the
// same name and would get the address.
func (n *leaderNetwork) self(ctx context.Context) (container.InspectResponse, error) {
	self, err := n.p.api.ContainerInspect(ctx, n.l.Self)
	if errdefs.IsNotFound(err) {
		return self, fmt.Errorf("%w: container %.80q not found: set --self to this server's container", provider.ErrInvalid, n.l.Self)
	}
	if err != nil {
		return self, fmt.Errorf("inspect server container %s: %w", n.l.Self, err)
	}
	if !n.ours(self.Config.Labels) {
		return self, fmt.Errorf("%w: container %.80q is not a server of this shard: set --self to the server's", provider.ErrInvalid, n.l.Self)
	}
	return self, nil
}

// Assign implements provider.LeaderNetwork. It disconnects any container of this shard's
// servers that has the address, including stopped ones, which would take it back when
// restarted; any other holder is an error.
func (n *leaderNetwork) Assign(ctx context.Context) error {
	self, err := n.self(ctx)
	if err != nil {
		return err
	}
	if n.holds(self.NetworkSettings.Networks) {
		return nil
	}
	if err := n.evict(ctx, self.ID); err != nil {
		return err
	}
	if _, connected := self.NetworkSettings.Networks[n.l.Network]; connected {
		if err := n.disconnect(ctx, self.ID); err != nil {
			return err
		}
	}
	if err := provider.Permit(ctx); err != nil {
		return err
	}
	err = n.p.api.NetworkConnect(ctx, n.l.Network, self.ID, &network.EndpointSettings{
		IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: n.l.IPv4.String()},
	})
	if err != nil {
		return fmt.Errorf("connect %s to network %s as %s: %w", n.l.Self, n.l.Network, n.l.IPv4, err)
	}
	return nil
}

// evict takes the address from the container that has it.
func (n *leaderNetwork) evict(ctx context.Context, self string) error {
	on, err := n.p.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("network", n.l.Network))})
	if err != nil {
		return fmt.Errorf("list containers of network %s: %w", n.l.Network, err)
	}
	for _, c := range on {
		if c.ID == self || c.NetworkSettings == nil || !n.claims(c.NetworkSettings.Networks) {
			continue
		}
		if !n.ours(c.Labels) {
			return fmt.Errorf("%w: %s on network %s belongs to container %s, which is not a server of this shard",
				provider.ErrInvalid, n.l.IPv4, n.l.Network, slices.Concat(c.Names, []string{c.ID})[0])
		}
		if err := n.disconnect(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

func (n *leaderNetwork) disconnect(ctx context.Context, id string) error {
	if err := provider.Permit(ctx); err != nil {
		return err
	}
	err := n.p.api.NetworkDisconnect(ctx, n.l.Network, id, true)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("disconnect %.12s from network %s: %w", id, n.l.Network, err)
	}
	return nil
}

func (n *leaderNetwork) ours(labels map[string]string) bool {
	for name, want := range ServerLabels(n.p.cfg.Scope) {
		if labels[name] != want {
			return false
		}
	}
	return true
}

// holds reports whether a container has the address now.
func (n *leaderNetwork) holds(networks map[string]*network.EndpointSettings) bool {
	e, ok := networks[n.l.Network]
	return ok && n.same(e.IPAddress)
}

// claims reports whether a container has the address, or will when it is started.
func (n *leaderNetwork) claims(networks map[string]*network.EndpointSettings) bool {
	e, ok := networks[n.l.Network]
	return ok && (n.same(e.IPAddress) || e.IPAMConfig != nil && n.same(e.IPAMConfig.IPv4Address))
}

func (n *leaderNetwork) same(text string) bool {
	addr, err := netip.ParseAddr(text)
	return err == nil && addr == n.l.IPv4
}
