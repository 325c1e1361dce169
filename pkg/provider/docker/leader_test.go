package docker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// TestLeaderNetwork moves an address back and forth between two servers, one of
// them dead by then.
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
			_ = e.api.ContainerRemove(context.Background(), c.ID, container.RemoveOptions{Force: true}) // the cluster's clean-up may be first
		})
		if err := e.api.ContainerStart(t.Context(), c.ID, container.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		return c.ID, leaderOf(t, e, docker.Leader{Network: name, IPv4: address, Self: c.ID}, scope)
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
		t.Error("assign against the guard succeeds")
	}
	holds(b, true)
	strangerID, stranger := server(map[string]string{provider.TagClusterID: scope.ClusterID})
	if err := stranger.Assign(t.Context()); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("a stranger takes the address: %v", err)
	}
	holds(b, true)
	if err := e.api.NetworkDisconnect(t.Context(), name, idB, true); err != nil {
		t.Fatal(err)
	}
	taken := &network.EndpointSettings{IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: address.String()}}
	if err := e.api.NetworkConnect(t.Context(), name, strangerID, taken); err != nil {
		t.Fatal(err)
	}
	if err := a.Assign(t.Context()); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("taking the address from a stranger: %v", err)
	}
}

// leaderOf opens the provider of a server that may have the leader's address.
func leaderOf(t *testing.T, e engine, l docker.Leader, scope provider.Scope) provider.LeaderNetwork {
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
		t.Fatal("no leader network although one was given")
	}
	return ln
}

func newNetwork(t *testing.T, e engine, scope provider.Scope) string {
	t.Helper()
	name := scope.ClusterID + "-leader"
	// An address can be asked for only where the subnet was given by hand.
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
		t.Skip("SKIPPED, the engine makes no network of its own here:", err)
	}
	t.Cleanup(func() {
		if err := e.api.NetworkRemove(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// leaderAddress picks the network's hundredth address.
func leaderAddress(t *testing.T, e engine, name string) netip.Addr {
	t.Helper()
	n, err := e.api.NetworkInspect(t.Context(), name, network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	four := netip.MustParsePrefix(n.IPAM.Config[0].Subnet).Addr().As4()
	four[3] = 100
	return netip.AddrFrom4(four)
}
