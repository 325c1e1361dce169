package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"syscall"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// InterfacePrimary is the value of Leader.Interface for an address that moves without an
// interface.
const InterfacePrimary = "primary"

// Leader is the leader's address.
type Leader struct {
	// Interface is the ID of the network interface that moves with the address. With
	// InterfacePrimary only the address moves, as a secondary address of the servers' primary
	// interfaces.
	Interface  string
	IPv4, IPv6 netip.Addr // at least one of them
	Self       string     // this server's instance ID; empty: from the metadata service
	// Local reports whether an address is assigned to this machine's system; nil: whether a
	// socket can be bound to it.
	Local func(ctx context.Context, addr netip.Addr) (bool, error)
	// Metadata makes the metadata service calls; nil: the SDK's default.
	Metadata *http.Client
}

var interfaceID = regexp.MustCompile(`^eni-([0-9a-f]{8}|[0-9a-f]{17})$`)

// Check returns all problems of l, which may be nil, as FieldErrors with paths of the config's
// server section. It is pure.
func (l *Leader) Check() error {
	if l == nil {
		return nil
	}
	var wrong provider.FieldErrors
	bad := func(field, format string, args ...any) { wrong.Addf("leader_network."+field, format, args...) }
	if l.Interface != InterfacePrimary && !interfaceID.MatchString(l.Interface) {
		bad("interface_id", "%.80q is not valid: want a network interface ID such as eni-0123456789abcdef0, or %s", l.Interface, InterfacePrimary)
	}
	if l.IPv4.IsValid() && !l.IPv4.Is4() {
		bad("ipv4", "%s is not valid: want an IPv4 address", l.IPv4)
	}
	if l.IPv6.IsValid() && (!l.IPv6.Is6() || l.IPv6.Is4In6() || l.IPv6.Zone() != "") {
		bad("ipv6", "%s is not valid: want an IPv6 address without a zone", l.IPv6)
	}
	if !l.IPv4.IsValid() && !l.IPv6.IsValid() {
		bad("ipv4", "required with interface_id unless ipv6 is set")
	}
	if l.Self != "" && !awsclient.IsInstanceID(l.Self) {
		wrong.Addf("--self", "%.80q is not valid: want an instance ID such as i-0123456789abcdef0", l.Self)
	}
	return wrong.Err()
}

// addresses returns the addresses that move.
func (l *Leader) addresses() []netip.Addr {
	return slices.DeleteFunc([]netip.Addr{l.IPv4, l.IPv6}, func(a netip.Addr) bool { return !a.IsValid() })
}

// LeaderNetwork returns the leader network; ok is false if no leader address is configured.
func (p *Provider) LeaderNetwork() (ln provider.LeaderNetwork, ok bool) {
	return p.leader, p.leader != nil
}

// newLeaderNetwork returns the leader network; nil if no leader address is configured.
func (p *Provider) newLeaderNetwork() provider.LeaderNetwork {
	if p.cfg.Leader == nil {
		return nil
	}
	l := *p.cfg.Leader
	if l.Local == nil {
		l.Local = bindable
	}
	n := &mover{p: p, l: l, id: l.Self}
	if l.Interface == InterfacePrimary {
		return &leaderAddress{n}
	}
	return &leaderInterface{n}
}

// bindable reports whether a socket can be bound to an address, as the server's will be.
func bindable(ctx context.Context, addr netip.Addr) (bool, error) {
	var how net.ListenConfig
	l, err := how.Listen(ctx, "tcp", netip.AddrPortFrom(addr, 0).String())
	switch {
	case err == nil:
		return true, l.Close()
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return false, nil
	default:
		return false, fmt.Errorf("bind a socket to %s: %w", addr, err)
	}
}
