//go:build integration

package containers

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// Network is a network of a story.
type Network struct {
	Name   string
	Subnet netip.Prefix // a /24: the engine assigns addresses of its upper half, Address those of the lower
}

// Address returns the nth address of a network, from 2 to 127, which the engine assigns only on
// request. The first is the gateway's.
func (n Network) Address(nth int) netip.Addr {
	four := n.Subnet.Addr().As4()
	four[3] += byte(nth)
	return netip.AddrFrom4(four)
}

// Network creates a bridge network with a subnet that is unused on the engine.
func (w *World) Network(name string) Network {
	w.Helper()
	var last error
	for third := range 256 {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 214, byte(third), 0}), 24)
		n := Network{Name: w.Cluster + "-" + name, Subnet: subnet}
		upper := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 214, byte(third), 128}), 25)
		_, last = w.API.NetworkCreate(w.Context(), n.Name, client.NetworkCreateOptions{
			Driver: "bridge", Labels: map[string]string{Label: w.Story},
			IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet, IPRange: upper, Gateway: n.Address(1)}}},
		})
		if last == nil {
			return n
		}
		if !strings.Contains(last.Error(), "overlap") {
			w.Fatalf("make the network %s: %v", name, last)
		}
	}
	w.Fatalf("make the network %s: no subnet is free: %v", name, last)
	return Network{}
}

// Disconnect disconnects a container from a network, and breaks its connections there.
func (c *Container) Disconnect(ctx context.Context, n Network) error {
	_, err := c.api.NetworkDisconnect(ctx, n.Name, client.NetworkDisconnectOptions{Container: c.ID, Force: true})
	if err != nil {
		return fmt.Errorf("disconnect %s from %s: %w", c.Name, n.Name, err)
	}
	return nil
}

// Connect reconnects it, with its original address and alias there.
func (c *Container) Connect(ctx context.Context, n Network) error {
	_, err := c.api.NetworkConnect(ctx, n.Name, client.NetworkConnectOptions{Container: c.ID, EndpointConfig: c.endpoint()})
	if err != nil {
		return fmt.Errorf("connect %s to %s: %w", c.Name, n.Name, err)
	}
	return nil
}
