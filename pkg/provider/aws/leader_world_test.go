package aws_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

const (
	far     = "subnet-0000000000000000c" // in another zone
	strange = "subnet-0000000000000000d" // in another VPC, with the same addresses
)

// The leader's address.
const (
	leader4 = "10.0.0.100"
	leader6 = "2001:db8::100"
)

// logged is a log that tests can read.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// shard is a cloud with the leader's interface, and servers, any of which may lead.
type shard struct {
	*awstest.Cloud
	client *http.Client
	mode   mode
	eni    string // of the leader's address
	log    *logged
}

// mode is a way to move the address.
type mode struct {
	name       string
	byENI      bool
	ipv4, ipv6 netip.Addr
}

// modes are both ways, each with either address family and with both.
func modes() (out []mode) {
	four, six := netip.MustParseAddr(leader4), netip.MustParseAddr(leader6)
	for _, byENI := range []bool{true, false} {
		name := map[bool]string{true: "interface", false: "address"}[byENI]
		out = append(out, mode{name + " IPv4", byENI, four, netip.Addr{}}, mode{name + " IPv6", byENI, netip.Addr{}, six},
			mode{name + " both", byENI, four, six})
	}
	return out
}

// newShard returns the cloud of a mode, in which attaching and detaching take time.
func newShard(t *testing.T, m mode, change func(*awstest.Config)) *shard {
	t.Helper()
	cfg := cloudConfig(t)
	cfg.Subnets[0].IPv6 = netip.MustParsePrefix("2001:db8::/64")
	cfg.Subnets = append(cfg.Subnets, awstest.Subnet{ID: far, VPC: vpc, Zone: region + "b", CIDR: netip.MustParsePrefix("10.0.32.0/24")})
	cfg.Subnets = append(cfg.Subnets, cfg.Subnets[0])
	cfg.Subnets[3].ID, cfg.Subnets[3].VPC = strange, "vpc-0000000b"
	cfg.InstanceTypes[0].Interfaces, cfg.InstanceTypes[0].AddressesEach = 3, 4
	cfg.Attach, cfg.Detach, cfg.Seed = 2*time.Second, 3*time.Second, 7
	if change != nil {
		change(&cfg)
	}
	s := &shard{Cloud: awstest.New(cfg), mode: m, log: &logged{}}
	s.client = serve(t, s.Cloud)
	if m.byENI {
		s.eni = s.plant(t, large, m.ipv4, m.ipv6, tags())
	}
	return s
}

// tags are those of the shard's interface.
func tags() map[string]string {
	return map[string]string{provider.TagManaged: "true", provider.TagClusterID: scope.ClusterID, provider.TagShard: scope.Shard}
}

func (s *shard) plant(t *testing.T, subnet string, ipv4, ipv6 netip.Addr, tags map[string]string) string {
	t.Helper()
	id, err := s.AddInterface(subnet, ipv4, ipv6, tags)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// host is a machine on which a server runs.
type host struct {
	provider.LeaderNetwork
	id string
}

// host adds a machine with a server.
func (s *shard) host(t *testing.T) host {
	t.Helper()
	id := s.machine(t, large, tags())
	return host{s.server(t, id, nil), id}
}

// machine adds a server's machine, whose interface has tags from a launch template.
func (s *shard) machine(t *testing.T, subnet string, tags map[string]string) (id string) {
	t.Helper()
	id = s.AddMachine(subnet, map[string]string{provider.TagClusterID: scope.ClusterID, "nstance:role": "server"}, false)
	if err := s.Tag(s.primary(id).ID, tags); err != nil {
		t.Fatal(err)
	}
	return id
}

// primary returns the primary interface of a machine.
func (s *shard) primary(id string) awstest.Interface {
	all := s.Interfaces()
	return all[slices.IndexFunc(all, func(i awstest.Interface) bool { return i.Instance == id && i.Index == 0 })]
}

// server returns what moves the address to a machine.
func (s *shard) server(t *testing.T, id string, change func(*aws.Leader)) provider.LeaderNetwork {
	t.Helper()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	l := aws.Leader{Interface: s.eni, IPv4: s.mode.ipv4, IPv6: s.mode.ipv6, Self: id, Metadata: serve(t, s.Metadata(id))}
	if !s.mode.byENI {
		l.Interface = aws.InterfacePrimary
	}
	l.Local = func(_ context.Context, addr netip.Addr) (bool, error) { // its system uses assigned addresses
		return slices.ContainsFunc(s.Interfaces(), func(i awstest.Interface) bool {
			return i.Instance == id && i.Status == "in-use" && slices.Contains(i.Addresses, addr)
		}), nil
	}
	if change != nil {
		change(&l)
	}
	cfg := aws.Default(scope, slog.New(slog.NewTextHandler(s.log, nil)))
	cfg.Region, cfg.Credentials, cfg.HTTPClient = region, keys{}, s.client
	cfg.Leader = &l
	p, err := aws.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, ok := provider.LeaderNetworkOf(p)
	if !ok {
		t.Fatal("no leader network although one was given")
	}
	return ln
}

// assign assigns the address to a host, and checks the result.
func (s *shard) assign(t *testing.T, h host) {
	t.Helper()
	if err := h.Assign(t.Context()); err != nil {
		t.Fatalf("assign: %v", err)
	}
	s.heldBy(t, h.id)
}

// heldBy checks that one machine has the whole address, and no other has a part of it.
func (s *shard) heldBy(t *testing.T, want string) {
	t.Helper()
	for _, addr := range []netip.Addr{s.mode.ipv4, s.mode.ipv6} {
		var holders []string
		for _, i := range s.Interfaces() {
			if i.Subnet != strange && slices.Contains(i.Addresses, addr) {
				holders = append(holders, i.Instance)
			}
		}
		if addr.IsValid() && !slices.Equal(holders, []string{want}) {
			t.Errorf("%s is held by %q, want %q alone", addr, holders, want)
		}
	}
}

// checks checks whether a server reports that it has the address.
func checks(t *testing.T, h host, want bool) {
	t.Helper()
	if got, err := h.Check(t.Context()); err != nil || got != want {
		t.Errorf("holds the address: %v, %v; want %v", got, err, want)
	}
}

// changes are the actions that change something.
func (s *shard) changes() (out []awstest.Call) {
	return slices.DeleteFunc(s.Calls(""), func(c awstest.Call) bool { return strings.HasPrefix(c.Action, "Describe") })
}

// actions are those of a move that finds the address on another server.
func (m mode) actions() (out []string) {
	if m.byENI {
		return []string{"DetachNetworkInterface", "AttachNetworkInterface"}
	}
	if m.ipv4.IsValid() {
		out = append(out, "AssignPrivateIpAddresses")
	}
	if m.ipv6.IsValid() {
		out = append(out, "UnassignIpv6Addresses", "AssignIpv6Addresses")
	}
	return out
}

var errNotLeader = errors.New("not the leader")
