package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/rpc"
)

// Endpoints are the addresses of a server, each host:port.
type Endpoints = config.Addrs

// over returns e overridden with every address that o sets.
func over(e, o Endpoints) Endpoints {
	return Endpoints{
		Health: cmp.Or(o.Health, e.Health), Election: cmp.Or(o.Election, e.Election), Registration: cmp.Or(o.Registration, e.Registration),
		Operator: cmp.Or(o.Operator, e.Operator), Agent: cmp.Or(o.Agent, e.Agent), Metrics: cmp.Or(o.Metrics, e.Metrics),
	}
}

// addresses are where this server listens, and what is derived from that.
type addresses struct {
	bind       Endpoints
	advertised Endpoints
	instances  struct{ Registration, Agent []string } // what new instances connect to
	dns        []string                               // in the server's certificate
	ips        []netip.Addr                           // in the server's certificate
}

// resolve determines the advertised addresses and the names in the server's certificate. It runs
// once for the names, before anything is bound, and again when the ports are known. A flag that
// overrides a bound address also overrides the advertised one.
func (a *addresses) resolve(ctx context.Context, cfg Config, shard *config.Shard) (err error) {
	host := cfg.AdvertiseHost
	if host == "" {
		host = primaryAddress(ctx)
	}
	if a.advertised, err = advertise(a.bind, over(shard.Server.Advertise, cfg.Bind), host); err != nil {
		return err
	}
	moving := shard.Server.LeaderNetwork
	leader := slices.DeleteFunc([]string{moving.IPv4, moving.IPv6}, func(ip string) bool { return ip == "" })
	if a.instances.Registration, err = instanceAddrs(cfg.InstanceRegistrationAddrs, leader, a.advertised.Registration, host); err != nil {
		return fmt.Errorf("--instance-registration-addrs: %w", err)
	}
	if a.instances.Agent, err = instanceAddrs(cfg.InstanceAgentAddrs, leader, a.advertised.Agent, host); err != nil {
		return fmt.Errorf("--instance-agent-addrs: %w", err)
	}
	a.dns, a.ips, err = names(a.advertised, append(leader, host))
	return err
}

// advertise returns the addresses to advertise, from the bound and the configured ones. An
// empty or wildcard host becomes host; an empty advertised address, or port 0, takes the bound
// port.
func advertise(bind, configured Endpoints, host string) (Endpoints, error) {
	var out Endpoints
	for _, e := range []struct {
		name             string
		bind, configured string
		to               *string
	}{
		{"health_addr", bind.Health, configured.Health, &out.Health},
		{"election_addr", bind.Election, configured.Election, &out.Election},
		{"registration_addr", bind.Registration, configured.Registration, &out.Registration},
		{"operator_addr", bind.Operator, configured.Operator, &out.Operator},
		{"agent_addr", bind.Agent, configured.Agent, &out.Agent},
	} {
		_, boundPort, err := net.SplitHostPort(e.bind)
		if err != nil {
			return Endpoints{}, fmt.Errorf("server.bind.%s: %.80q is not host:port", e.name, e.bind)
		}
		e.configured = cmp.Or(e.configured, e.bind)
		h, port, err := net.SplitHostPort(e.configured)
		if err != nil {
			return Endpoints{}, fmt.Errorf("server.advertise.%s: %.80q is not host:port", e.name, e.configured)
		}
		if wildcard(h) {
			h = host
		}
		if port == "0" {
			port = boundPort
		}
		*e.to = net.JoinHostPort(h, port)
	}
	return out, nil
}

func wildcard(host string) bool {
	if host == "" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsUnspecified()
}

// primaryAddress returns the address of the interface with the default route, or loopback if
// there is none. No packet is sent to find it.
func primaryAddress(ctx context.Context) string {
	var dialer net.Dialer
	for _, probe := range []struct{ network, to string }{{"udp4", "192.0.2.1:9"}, {"udp6", "[2001:db8::1]:9"}} {
		conn, err := dialer.DialContext(ctx, probe.network, probe.to)
		if err != nil {
			continue
		}
		addr := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		conn.Close()
		return addr.String()
	}
	return "127.0.0.1"
}

// instanceAddrs returns the addresses of one service that new instances connect to: the
// configured ones, else the leader's moving addresses and this server's own. A missing host
// becomes host.
func instanceAddrs(configured, leader []string, own, host string) ([]string, error) {
	var out []string
	for _, addr := range configured {
		h, port, err := net.SplitHostPort(addr)
		if err == nil && wildcard(h) {
			addr = net.JoinHostPort(host, port)
		}
		if addr, err = rpc.ParseAddr(addr); err != nil {
			return nil, err
		}
		out = append(out, addr)
	}
	if len(out) > 0 {
		return out, nil
	}
	_, port, err := net.SplitHostPort(own)
	if err != nil {
		return nil, err
	}
	for _, ip := range leader {
		out = append(out, net.JoinHostPort(ip, port))
	}
	if !slices.Contains(out, own) { // equal if the leader's address is advertised, too
		out = append(out, own)
	}
	return out, nil
}

// names returns the names and addresses for the server's certificate: every advertised host, the
// leader's addresses, and loopback.
func names(advertised Endpoints, hosts []string) (dns []string, ips []netip.Addr, err error) {
	for _, addr := range []string{advertised.Health, advertised.Election, advertised.Registration, advertised.Operator, advertised.Agent} {
		h, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, nil, err
		}
		hosts = append(hosts, h)
	}
	seen := map[string]bool{}
	for _, h := range append(hosts, "localhost", "127.0.0.1", "::1") {
		if seen[h] {
			continue
		}
		seen[h] = true
		if ip, err := netip.ParseAddr(h); err == nil {
			ips = append(ips, ip.Unmap())
		} else {
			dns = append(dns, h)
		}
	}
	return dns, ips, nil
}
