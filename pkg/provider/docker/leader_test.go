package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// TestLeaderNetwork moves an address between two servers, also from a dead one.
func TestLeaderNetwork(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	name := newNetwork(t, e, scope)
	address := leaderAddress(t, e, name)
	server := func(labels map[string]string) (id string, ln provider.LeaderNetwork) {
		c, err := e.api.ContainerCreate(t.Context(), &container.Config{Image: e.image, Labels: labels}, nil, nil, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = e.api.ContainerRemove(context.Background(), c.ID, container.RemoveOptions{Force: true}) // newCluster's cleanup may come first
		})
		if err := e.api.ContainerStart(t.Context(), c.ID, container.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		return c.ID, openLeaderNetwork(t, e, docker.Leader{Network: name, IPv4: address, Self: c.ID}, scope)
	}
	idA, a := server(docker.ServerLabels(scope))
	idB, b := server(docker.ServerLabels(scope))
	holds := func(ln provider.LeaderNetwork, want bool) {
		t.Helper()
		if got, err := ln.Check(t.Context()); err != nil || got != want {
			t.Errorf("holds the address: %v, %v; want %v", got, err, want)
		}
	}
	assign := func(ln provider.LeaderNetwork) {
		t.Helper()
		for range 2 {
			if err := ln.Assign(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	holds(a, false)
	assign(a)
	holds(a, true)
	assign(b)
	holds(a, false)
	holds(b, true)
	assign(a)
	if err := e.api.ContainerKill(t.Context(), idA, "KILL"); err != nil {
		t.Fatal(err)
	}
	assign(b)
	holds(b, true)
	if err := e.api.ContainerStart(t.Context(), idA, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	holds(a, false)
	holds(b, true)
	refused := provider.WithGuard(t.Context(), func(context.Context) error { return errors.New("not the leader") })
	if err := a.Assign(refused); err == nil {
		t.Error("assign succeeded despite the guard")
	}
	holds(b, true)
	foreignID, foreign := server(map[string]string{provider.TagClusterID: scope.ClusterID})
	if err := foreign.Assign(t.Context()); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("assign to a foreign container: %v, want ErrInvalid", err)
	}
	holds(b, true)
	if err := e.api.NetworkDisconnect(t.Context(), name, idB, true); err != nil {
		t.Fatal(err)
	}
	taken := &network.EndpointSettings{IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: address.String()}}
	if err := e.api.NetworkConnect(t.Context(), name, foreignID, taken); err != nil {
		t.Fatal(err)
	}
	if err := a.Assign(t.Context()); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("assign of an address that a foreign container has: %v, want ErrInvalid", err)
	}
}

// openLeaderNetwork opens the provider of a server that may have the leader's address.
func openLeaderNetwork(t *testing.T, e engine, l docker.Leader, scope provider.Scope) provider.LeaderNetwork {
	t.Helper()
	cfg := docker.Default(scope, slog.New(slog.DiscardHandler))
	cfg.Image, cfg.Leader = e.image, &l
	p, err := docker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	ln, ok := provider.LeaderNetworkOf(p)
	if !ok {
		t.Fatal("no leader network although one is configured")
	}
	return ln
}

func newNetwork(t *testing.T, e engine, scope provider.Scope) string {
	t.Helper()
	name := scope.ClusterID + "-leader"
	// Only a network with a configured subnet accepts a requested address.
	var err error
	for third := range 200 {
		subnet := fmt.Sprintf("10.213.%d.0/24", (os.Getpid()+third)%256)
		_, err = e.api.NetworkCreate(t.Context(), name, network.CreateOptions{
			IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet}}},
		})
		if err == nil {
			break
		}
	}
	if err != nil {
		t.Skip("SKIPPED, the engine can't create a network here:", err)
	}
	t.Cleanup(func() {
		if err := e.api.NetworkRemove(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// leaderAddress returns address 100 of the network.
func leaderAddress(t *testing.T, e engine, name string) netip.Addr {
	t.Helper()
	n, err := e.api.NetworkInspect(t.Context(), name, network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ipv4 := netip.MustParsePrefix(n.IPAM.Config[0].Subnet).Addr().As4()
	ipv4[3] = 100
	return netip.AddrFrom4(ipv4)
}

// TestLeaderConfig: the leader's address requires a network and an IPv4 address. The server's
// own container is the one named like the host, unless configured; the error names an unknown
// one.
func TestLeaderConfig(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	address, w := serveFake(t, nil)
	base := docker.Default(testScope(), slog.New(slog.DiscardHandler))
	base.Host, base.Image = address, "agent:1"
	ipv4 := netip.MustParseAddr("10.0.0.100")
	for self, want := range map[string]string{"": host, "server-1": "server-1"} {
		cfg := base
		cfg.Leader = &docker.Leader{Network: "l", IPv4: ipv4, Self: self}
		p, err := docker.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		n, ok := provider.LeaderNetworkOf(p)
		if !ok {
			t.Fatal("no leader network")
		}
		for _, err := range []error{func() error { _, err := n.Check(t.Context()); return err }(), n.Assign(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q not found: set --self", want)) {
				t.Errorf("self %q: %v", self, err)
			}
		}
	}
	if countCalls(w, "GET json") != 4 {
		t.Errorf("calls %v", w.calls)
	}
	for want, l := range map[string]docker.Leader{
		"leader_network.interface_id is empty": {IPv4: ipv4},
		"leader_network.ipv4 is \"::1\"":       {Network: "l", IPv4: netip.IPv6Loopback()},
	} {
		cfg := base
		cfg.Leader = &l
		if _, err := docker.New(cfg); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want ErrInvalid with %q", l, err, want)
		}
	}
}

// TestLeaderContainerIsServer: a container with the host's name that is not a server of the
// shard is not changed.
func TestLeaderContainerIsServer(t *testing.T) {
	other := testScope()
	other.Shard = "another"
	for name, c := range map[string]struct {
		labels map[string]string
		server bool
	}{
		"a server of the shard":     {docker.ServerLabels(testScope()), true},
		"a server of another shard": {docker.ServerLabels(other), false},
		"an unrelated container":    {map[string]string{"role": "database"}, false},
		"no labels":                 {nil, false},
	} {
		labels, err := json.Marshal(c.labels)
		if err != nil {
			t.Fatal(err)
		}
		host, w := serveFake(t, map[string]response{
			"GET json":     {200, fmt.Sprintf(`{"Id": "x", "Config": {"Labels": %s}, "NetworkSettings": {}}`, labels)},
			"POST connect": {200, ""},
		})
		cfg := docker.Default(testScope(), slog.New(slog.DiscardHandler))
		cfg.Host, cfg.Image = host, "agent:1"
		cfg.Leader = &docker.Leader{Network: "l", IPv4: netip.MustParseAddr("10.0.0.100"), Self: "host-1"}
		p, err := docker.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := provider.LeaderNetworkOf(p)
		if _, err := n.Check(t.Context()); c.server != (err == nil) {
			t.Errorf("%s: check: %v", name, err)
		}
		if c.server {
			continue
		}
		err = n.Assign(t.Context())
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), `"host-1" is not a server of this shard: set --self`) {
			t.Errorf("%s: assign: %v", name, err)
		}
		if countCalls(w, "POST connect")+countCalls(w, "POST disconnect") > 0 {
			t.Errorf("%s: calls %v", name, w.calls)
		}
	}
}
