package registration

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	maxHostname = 253 // the longest that DNS can hold (RFC 1035)
	maxIPs      = 32
	localhost   = "localhost"
)

var hostnamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

// facts checks what an instance says of itself: certificates may be made from it
// later, so it must not claim what is not its own. Names and addresses of the
// machine itself are let through, since instances that share a host with the
// server have no other. It returns the addresses in one form.
func (s *Service) facts(shard Shard, id fleet.InstanceID, req *nstancev1.RegisterAgentRequest) ([]string, error) {
	if name := req.GetHostname(); name != "" {
		switch {
		case len(name) > maxHostname || !hostnamePattern.MatchString(name):
			return nil, invalid("hostname", fmt.Sprintf("%.80q is not a host name", name))
		case name != localhost && s.cfg.ReservedName(name):
			return nil, invalid("hostname", fmt.Sprintf("%q is a server's name", name))
		}
	}
	if len(req.GetIps()) > maxIPs {
		return nil, invalid("ips", fmt.Sprintf("%d addresses: at most %d are taken", len(req.GetIps()), maxIPs))
	}
	known := shard.Addresses(id)
	ips := make([]string, 0, len(req.GetIps()))
	for _, text := range req.GetIps() {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, invalid("ips", fmt.Sprintf("%.80q is not an IP address", text))
		}
		ip = ip.Unmap().WithZone("") // a zone means something on the instance alone
		switch {
		case ip.IsUnspecified() || ip.IsMulticast():
			return nil, invalid("ips", ip.String()+" is not the address of one machine")
		case ip.IsLoopback():
		case s.cfg.ReservedAddr(ip):
			return nil, invalid("ips", ip.String()+" is a server's address")
		case !slices.Contains(known, ip) && slices.ContainsFunc(known, func(k netip.Addr) bool { return k.Is4() == ip.Is4() }):
			// Of a family that the provider says nothing of, anything may be true.
			return nil, invalid("ips", ip.String()+" is not an address that the provider gave to this instance")
		}
		ips = append(ips, ip.String())
	}
	return ips, nil
}
