package aws_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

func TestLeaderConfig(t *testing.T) {
	four, six := netip.MustParseAddr(leader4), netip.MustParseAddr(leader6)
	for _, c := range []struct {
		l    aws.Leader
		says string // empty: it is allowed
	}{
		{aws.Leader{Interface: "eni-0123456789abcdef0", IPv4: four, IPv6: six, Self: "i-0123456789abcdef0"}, ""},
		{aws.Leader{Interface: aws.InterfacePrimary, IPv6: six}, ""},
		{aws.Leader{Interface: "", IPv4: four}, "leader_network.interface_id"},
		{aws.Leader{Interface: "eth0", IPv4: four}, `"eth0"`},
		{aws.Leader{Interface: "eni-0123456789abcdef*", IPv4: four}, "leader_network.interface_id"},
		{aws.Leader{Interface: aws.InterfacePrimary}, "leader_network.ipv4: required"},
		{aws.Leader{Interface: aws.InterfacePrimary, IPv4: six}, "leader_network.ipv4: " + leader6},
		{aws.Leader{Interface: aws.InterfacePrimary, IPv6: four}, "leader_network.ipv6: " + leader4},
		{aws.Leader{Interface: aws.InterfacePrimary, IPv6: netip.MustParseAddr("fe80::1%eth0")}, "leader_network.ipv6"},
		{aws.Leader{Interface: aws.InterfacePrimary, IPv6: netip.MustParseAddr("::ffff:10.0.0.1")}, "leader_network.ipv6"},
		{aws.Leader{Interface: aws.InterfacePrimary, IPv4: four, Self: "server-1"}, "--self"},
	} {
		cfg := aws.Default(scope, slog.New(slog.DiscardHandler))
		cfg.Leader = &c.l
		err := cfg.Validate()
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v; want an error that says %q", c.l, err, c.says)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, p := newWorld(t, nil)
		if ln, ok := provider.LeaderNetworkOf(p); ok || ln != nil {
			t.Errorf("without an address there is %v to move it", ln)
		}
	})
}

// TestLeaderRefused: a move that is not allowed is refused before anything has changed.
func TestLeaderRefused(t *testing.T) {
	four, none := netip.MustParseAddr(leader4), netip.Addr{}
	byENI := mode{name: "interface", byENI: true, ipv4: four}
	byIP := mode{name: "address", ipv4: four}
	other := tags()
	other[provider.TagShard] = "t"
	for name, c := range map[string]struct {
		mode
		change func(t *testing.T, s *shard, holder host, l *aws.Leader)
		kind   error
		says   string
	}{
		"another zone": {byENI, func(t *testing.T, s *shard, _ host, l *aws.Leader) {
			l.IPv4 = netip.MustParseAddr("10.0.32.9")
			l.Interface = s.plant(t, far, l.IPv4, none, tags())
		}, provider.ErrInvalid, region + "b"},
		"no tags": {byENI, func(t *testing.T, s *shard, _ host, l *aws.Leader) {
			l.IPv4 = netip.MustParseAddr("10.0.0.9")
			l.Interface = s.plant(t, large, l.IPv4, none, nil)
		}, provider.ErrInvalid, provider.TagManaged},
		"another shard's": {byENI, func(t *testing.T, s *shard, _ host, l *aws.Leader) {
			l.IPv4 = netip.MustParseAddr("10.0.0.9")
			l.Interface = s.plant(t, large, l.IPv4, none, other)
		}, provider.ErrInvalid, provider.TagShard},
		"another address": {byENI, func(_ *testing.T, _ *shard, _ host, l *aws.Leader) {
			l.IPv4 = netip.MustParseAddr("10.0.0.101")
		}, provider.ErrInvalid, leader4},
		"no IPv6": {byENI, func(_ *testing.T, _ *shard, _ host, l *aws.Leader) {
			l.IPv6 = netip.MustParseAddr(leader6)
		}, provider.ErrInvalid, leader6},
		"a primary interface": {byENI, func(_ *testing.T, s *shard, h host, l *aws.Leader) {
			for _, i := range s.Interfaces() {
				if i.Instance == h.id && i.Index == 0 {
					l.Interface, l.IPv4 = i.ID, i.Addresses[0]
				}
			}
		}, provider.ErrInvalid, "primary"},
		"no interface": {byENI, func(_ *testing.T, _ *shard, _ host, l *aws.Leader) {
			l.Interface = "eni-00000000000000000"
		}, provider.ErrNotFound, "eni-00000000000000000"},
		"no instance": {byENI, func(_ *testing.T, _ *shard, _ host, l *aws.Leader) {
			l.Self = "i-00000000000000000"
		}, provider.ErrNotFound, "--self"},
		"no instance for an address": {byIP, func(_ *testing.T, _ *shard, _ host, l *aws.Leader) {
			l.Self = "i-00000000000000000"
		}, provider.ErrNotFound, "--self"},
		"another's primary address": {byIP, func(_ *testing.T, _ *shard, _ host, l *aws.Leader) {
			l.IPv4 = netip.MustParseAddr("10.0.0.5")
		}, provider.ErrInvalid, "primary address"},
		"its own primary address": {byIP, func(_ *testing.T, _ *shard, _ host, l *aws.Leader) {
			l.IPv4 = netip.MustParseAddr("10.0.0.4")
		}, provider.ErrInvalid, "primary address"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShard(t, c.mode, nil)
				h, holder := s.host(t), s.host(t)
				s.assign(t, holder)
				before := len(s.changes())
				ln := s.server(t, h.id, func(l *aws.Leader) { c.change(t, s, holder, l) })
				err := ln.Assign(t.Context())
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("assign: %v; want %v that says %q", err, c.kind, c.says)
				}
				if n := len(s.changes()) - before; n != 0 {
					t.Errorf("it made %d changes", n)
				}
				s.heldBy(t, holder.id)
				if held, _ := ln.Check(t.Context()); held {
					t.Error("and yet it holds the address")
				}
			})
		})
	}
}

// TestLeaderNoRoom: a machine without room for the interface soon causes an error.
func TestLeaderNoRoom(t *testing.T) {
	for name, c := range map[string]struct {
		change func(cfg *awstest.Config)
		fault  string
		calls  int
		says   string
	}{
		"limit":           {func(cfg *awstest.Config) { cfg.InstanceTypes[0].Interfaces = 1 }, "", 1, "AttachmentLimitExceeded"},
		"no index at all": {nil, "InvalidParameterValue", 9, "InvalidParameterValue"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShard(t, modes()[0], c.change)
				h := s.host(t)
				if c.fault != "" {
					s.FailNext("AttachNetworkInterface", 100, awstest.Fault{Code: c.fault, Status: http.StatusBadRequest})
				}
				err := h.Assign(t.Context())
				if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("assign: %v; want that it says %s", err, c.says)
				}
				if n := len(s.Calls("AttachNetworkInterface")); n != c.calls {
					t.Errorf("%d calls, want %d", n, c.calls)
				}
			})
		})
	}
}

// TestLeaderOutside: the address belongs to no subnet of the server.
func TestLeaderOutside(t *testing.T) {
	for _, addr := range []string{"10.0.16.9", "2001:db9::9"} {
		t.Run(addr, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := mode{ipv4: netip.MustParseAddr(addr)}
				if m.ipv4.Is6() {
					m.ipv4, m.ipv6 = netip.Addr{}, m.ipv4
				}
				s := newShard(t, m, nil)
				h := s.host(t)
				err := h.Assign(t.Context())
				if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "subnet") {
					t.Errorf("assign: %v", err)
				}
				if n := len(s.changes()); n != 1 {
					t.Errorf("%d calls, want 1: %s", n, fmt.Sprint(s.changes()))
				}
			})
		})
	}
}
