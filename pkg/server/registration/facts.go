package registration

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	maxHostname = 253 // the maximum in DNS (RFC 1035)
	maxIPs      = 32
)

var hostnamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

// Machine is the provider's data on an instance's machine.
type Machine struct {
	Names     []string // of the machine in the provider's DNS, lowercase
	Addresses []netip.Addr
	Running   bool      // running, so its initial addresses are assigned
	AskedAt   time.Time // of the last DescribeMachine; zero: not in this term
}

// silent reports whether the provider lists no address of addr's family.
func (m Machine) silent(addr netip.Addr) bool {
	return !slices.ContainsFunc(m.Addresses, func(a netip.Addr) bool { return a.Is4() == addr.Is4() })
}

// Owner is the owner of a name or address, as it appears in errors; empty: only the instance
// in question, or none.
type Owner string

// Owners that prevent certification.
const (
	OwnerServer   Owner = "a server's"
	OwnerInstance Owner = "another instance's"
)

// Owners returns the owner of a name or address other than the instance. Loopback addresses
// have none.
type Owners interface {
	NameOwner(id fleet.InstanceID, name string) Owner
	AddressOwner(id fleet.InstanceID, addr netip.Addr) Owner
}

// claims are an agent's claims about its machine. They prove nothing: they only select from
// the server's and the provider's data.
type claims struct {
	hostname string
	ips      []netip.Addr
}

// some reports whether anything is claimed.
func (c claims) some() bool { return c.hostname != "" || len(c.ips) > 0 }

// parseClaims parses claims and checks their syntax.
func parseClaims(req *nstancev1.RegisterAgentRequest) (claims, error) {
	c := claims{hostname: req.GetHostname()}
	if c.hostname != "" && (len(c.hostname) > maxHostname || !hostnamePattern.MatchString(c.hostname)) {
		return claims{}, rpc.InvalidField("hostname", fmt.Sprintf("%.80q is not a host name: leave it empty or use the instance's", c.hostname))
	}
	if len(req.GetIps()) > maxIPs {
		return claims{}, rpc.InvalidField("ips", fmt.Sprintf("%d addresses: at most %d are allowed", len(req.GetIps()), maxIPs))
	}
	for _, text := range req.GetIps() {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return claims{}, rpc.InvalidField("ips", fmt.Sprintf("%.80q is not an IP address: leave it out or use the machine's", text))
		}
		ip = ip.Unmap().WithZone("") // a zone is only meaningful on the instance
		if ip.IsUnspecified() || ip.IsMulticast() {
			return claims{}, rpc.InvalidField("ips", ip.String()+" is not a unicast address")
		}
		if !slices.Contains(c.ips, ip) {
			c.ips = append(c.ips, ip)
		}
	}
	return c, nil
}

// verdict is the decision on claims.
type verdict struct {
	hostname string
	ips      []string        // claimed ones first; none of a family without provider data
	wrong    []rpc.Violation // claims that contradict the provider's data
	unknown  []netip.Addr    // claims without provider data
}

// judge compares claims with the provider's data.
func (c claims) judge(id fleet.InstanceID, m Machine, owners Owners) verdict {
	v := verdict{hostname: string(id)}
	if c.hostname != "" && !strings.EqualFold(c.hostname, string(id)) {
		v.hostname = strings.ToLower(c.hostname)
		v.judgeHostname(c.hostname, id, m, owners)
	}
	var first []string
	for _, ip := range c.ips {
		whose := owners.AddressOwner(id, ip)
		switch known := slices.Contains(m.Addresses, ip); {
		case known && whose == "":
			first = append(first, ip.String())
		case known || whose == OwnerServer:
			v.refuse("ips", fmt.Sprintf("%s is %s address", ip, whose))
		case m.silent(ip):
			v.unknown = append(v.unknown, ip)
		default:
			v.refuse("ips", fmt.Sprintf("%s is not an address of this instance: leave it out or use one of %s", ip, list(m.Addresses)))
		}
	}
	own := slices.DeleteFunc(slices.Clone(m.Addresses), func(a netip.Addr) bool { return owners.AddressOwner(id, a) != "" })
	v.ips = fleet.Addresses(first, own)
	return v
}

func (v *verdict) judgeHostname(claimed string, id fleet.InstanceID, m Machine, owners Owners) {
	whose := owners.NameOwner(id, v.hostname)
	switch {
	case whose != "" && slices.Contains(m.Names, v.hostname):
		v.refuse("hostname", fmt.Sprintf("%q is %s name", claimed, whose))
	case !slices.Contains(m.Names, v.hostname):
		v.refuse("hostname", fmt.Sprintf("%q is not a name of this instance: leave it empty or use one of %s", claimed,
			strings.Join(append([]string{string(id)}, m.Names...), ", ")))
	}
}

func (v *verdict) refuse(field, description string) {
	v.wrong = append(v.wrong, rpc.Violation{Field: field, Description: description})
}

func list(addrs []netip.Addr) string {
	texts := make([]string, len(addrs))
	for n, a := range addrs {
		texts[n] = a.String()
	}
	return strings.Join(texts, ", ")
}
