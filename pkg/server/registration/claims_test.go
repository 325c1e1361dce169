package registration_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/registration"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const instance = fleet.InstanceID("knd01h455vb4pex5vsknk084sn02q")

// shard has one instance, with provider data on its machine.
type shard struct {
	registration.Shard

	record  fleet.Instance
	machine registration.Machine
	later   registration.Machine // the result of DescribeMachine
	failing error
	unread  error // the error of RefreshServers
	asked   int
	refused []string
	foreign []netip.Addr
}

func (s *shard) Instance(context.Context, string, fleet.InstanceID) (fleet.Instance, error) {
	return s.record, nil
}

func (s *shard) UpdateInstance(_ context.Context, _ fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	err := change(&s.record)
	return s.record, err
}

func (s *shard) RefreshServers(context.Context) error { return s.unread }

func (s *shard) ClaimKey(fleet.InstanceID, string) bool { return true }

func (s *shard) Machine(fleet.InstanceID) registration.Machine { return s.machine }

func (s *shard) DescribeMachine(context.Context, fleet.Instance) (registration.Machine, error) {
	s.asked++
	return s.later, s.failing
}

func (s *shard) NameOwner(_ fleet.InstanceID, name string) registration.Owner {
	if name == "server.example" {
		return registration.OwnerServer
	}
	return ""
}

func (s *shard) AddressOwner(_ fleet.InstanceID, addr netip.Addr) registration.Owner {
	if slices.Contains(s.foreign, addr) {
		return registration.OwnerInstance
	}
	return ""
}

func (s *shard) RegistrationRefused(_ string, _ fleet.InstanceID, why error) {
	s.refused = append(s.refused, why.Error())
}

func (s *shard) Registered(fleet.InstanceID) {}

// desk registers instances of a shard, at a fixed time.
type desk struct {
	service *registration.Service
	request *nstancev1.RegisterAgentRequest
	at      time.Time
}

func newDesk(t testing.TB, s *shard) *desk {
	t.Helper()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	token, err := nonce.Mint(key, nonce.Claims{
		Kind: nonce.KindAgent, Subject: string(instance), ClusterID: "c", Tenant: "default", Shard: "s", ID: string(instance),
		IssuedAt: at, NotBefore: at, ExpiresAt: at.Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(pki.CAConfig{Cluster: "c", Key: key, Now: at, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	public, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		t.Fatal(err)
	}
	s.record = fleet.Instance{ID: instance, Tenant: "default", Group: "web", Phase: fleet.Pending}
	return &desk{
		at:      at,
		request: &nstancev1.RegisterAgentRequest{Nonce: token, PublicKey: string(public)},
		service: registration.New(registration.Config{
			Shard:     func() (registration.Shard, error) { return s, nil },
			ClusterID: "c", ShardID: "s", NonceKey: key.Public().(ed25519.PublicKey), CA: ca, Bundle: func() []byte { return nil },
			TTL: time.Hour, Now: func() time.Time { return at }, Random: rand.Reader, Logger: slog.New(slog.DiscardHandler),
		}),
	}
}

func (d *desk) register(t testing.TB, hostname string, ips ...string) error {
	t.Helper()
	d.request.Hostname, d.request.Ips = hostname, ips
	_, err := d.service.RegisterAgent(t.Context(), d.request)
	return err
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// TestWhatTheProviderSays: the provider is asked if the known data does not confirm a claim,
// and its answer decides. Data that it does not have yet is waited for.
func TestWhatTheProviderSays(t *testing.T) {
	four, both := addrs("10.0.0.1"), addrs("10.0.0.1", "fd00::1")
	for name, c := range map[string]struct {
		now, later registration.Machine
		failing    error
		unread     error
		hostname   string
		ips        []string
		foreign    []netip.Addr

		kind  rpc.Kind // of the refusal; empty: it registers
		as    string
		with  string
		asked int
	}{
		"nothing is claimed": {now: registration.Machine{Addresses: both}, as: string(instance), with: "10.0.0.1 fd00::1"},
		"what is known": {now: registration.Machine{Addresses: both}, ips: []string{"fd00::1"},
			as: string(instance), with: "fd00::1 10.0.0.1"},
		"its id":                {now: registration.Machine{Addresses: four}, hostname: string(instance), as: string(instance), with: "10.0.0.1"},
		"nothing is known":      {later: registration.Machine{Addresses: four, Running: true}, as: string(instance), with: "10.0.0.1", asked: 1},
		"nothing is to be said": {later: registration.Machine{Running: true}, ips: []string{"10.0.0.1"}, as: string(instance), asked: 1},
		"it was moved": {now: registration.Machine{Addresses: four}, later: registration.Machine{Addresses: addrs("10.0.0.2")},
			ips: []string{"10.0.0.2"}, as: string(instance), with: "10.0.0.2", asked: 1},
		"a name by its name service": {now: registration.Machine{Addresses: four, Names: []string{"ip-1.example"}}, hostname: "IP-1.example",
			as: "ip-1.example", with: "10.0.0.1"},
		"a name that is known late": {now: registration.Machine{Addresses: four},
			later:    registration.Machine{Addresses: four, Names: []string{"ip-1.example"}},
			hostname: "ip-1.example", as: "ip-1.example", with: "10.0.0.1", asked: 1},
		"a family without a word": {now: registration.Machine{Addresses: four}, later: registration.Machine{Addresses: four, Running: true},
			ips: []string{"fd00::1", "::1"}, as: string(instance), with: "10.0.0.1", asked: 1},
		"that family, of a machine that starts": {now: registration.Machine{Addresses: four}, later: registration.Machine{Addresses: four},
			ips: []string{"fd00::1"}, kind: rpc.Unavailable, asked: 1},
		"a machine of which nothing is known": {ips: []string{"10.0.0.1"}, kind: rpc.Unavailable, asked: 1},
		"no answer":                           {ips: []string{"10.0.0.1"}, failing: errors.New("down"), kind: rpc.Unavailable, asked: 1},
		"no answer, and nothing is claimed":   {failing: errors.New("down"), as: string(instance), asked: 1},
		"servers are not known": {now: registration.Machine{Addresses: four}, ips: []string{"10.0.0.1"}, unread: errors.New("down"),
			kind: rpc.Unavailable},
		"servers are not known, and nothing is claimed": {now: registration.Machine{Addresses: four}, unread: errors.New("down"),
			as: string(instance), with: "10.0.0.1"},
		"another address": {now: registration.Machine{Addresses: four}, later: registration.Machine{Addresses: four, Running: true},
			ips: []string{"10.0.0.2"}, kind: rpc.Invalid, asked: 1},
		"a name of no machine": {now: registration.Machine{Addresses: four}, later: registration.Machine{Addresses: four, Running: true},
			hostname: "kubernetes.default.svc", kind: rpc.Invalid, asked: 1},
		"a server's, by the name service": {now: registration.Machine{Addresses: four, Names: []string{"server.example"}},
			later:    registration.Machine{Addresses: four, Names: []string{"server.example"}},
			hostname: "server.example", kind: rpc.Invalid, asked: 1},
		"asked a moment ago": {now: registration.Machine{Addresses: four, AskedAt: time.Date(2029, 12, 31, 23, 59, 58, 0, time.UTC)},
			ips: []string{"10.0.0.2"}, kind: rpc.Invalid},
		"an address that another has too": {now: registration.Machine{Addresses: both}, foreign: addrs("10.0.0.1"),
			as: string(instance), with: "fd00::1"},
		"and it is claimed": {now: registration.Machine{Addresses: both}, later: registration.Machine{Addresses: both},
			foreign: addrs("10.0.0.1"), ips: []string{"10.0.0.1"}, kind: rpc.Invalid, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shard{machine: c.now, later: c.later, failing: c.failing, unread: c.unread, foreign: c.foreign}
			err := newDesk(t, s).register(t, c.hostname, c.ips...)
			if c.kind == "" && err != nil || c.kind != "" && !errors.Is(err, c.kind) {
				t.Errorf("answered %v, want kind %q", err, c.kind)
			}
			if s.record.Hostname != c.as || strings.Join(s.record.IPs, " ") != c.with || (s.record.Phase == fleet.Running) != (c.kind == "") {
				t.Errorf("the record is %+v, want %s with %s", s.record, c.as, c.with)
			}
			if s.asked != c.asked || (len(s.refused) == 1) != (c.kind != "") {
				t.Errorf("asked %d times, want %d; told %q", s.asked, c.asked, s.refused)
			}
		})
	}
}

// FuzzClaims: whatever an agent claims, its instance is only certified for its ID, a name in
// the provider's DNS, and addresses assigned by the provider.
func FuzzClaims(f *testing.F) {
	for _, seed := range []struct{ hostname, ip, another string }{
		{"", "", ""}, {string(instance), "10.0.0.1", "fd00::1"}, {"IP-1.example", "::ffff:10.0.0.1", "fd00::1%eth0"},
		{"kubernetes.default.svc", "10.96.0.1", "127.0.0.1"}, {"a b", "0.0.0.0", "ff02::1"}, {strings.Repeat("a.", 127), "x", "10.0.0.01"},
	} {
		f.Add(seed.hostname, seed.ip, seed.another, true)
		f.Add(seed.hostname, seed.ip, seed.another, false)
	}
	known := addrs("10.0.0.1", "fd00::1")
	f.Fuzz(func(t *testing.T, hostname, ip, another string, running bool) {
		m := registration.Machine{Addresses: known, Names: []string{"ip-1.example"}, Running: running}
		s := &shard{machine: m, later: m}
		ips := slices.DeleteFunc([]string{ip, another}, func(text string) bool { return text == "" })
		err := newDesk(t, s).register(t, hostname, ips...)
		if err != nil {
			var wrong *rpc.ViolationsError
			if !errors.As(err, &wrong) || len(wrong.Violations) == 0 || s.record.Phase != fleet.Pending ||
				s.record.Hostname != "" || s.record.IPs != nil {
				t.Fatalf("%q, %q: %v, and the record is %+v", hostname, ips, err, s.record)
			}
			return
		}
		if s.record.Hostname != string(instance) && s.record.Hostname != "ip-1.example" {
			t.Errorf("%q came to be known as %q", hostname, s.record.Hostname)
		}
		for _, text := range s.record.IPs {
			if !slices.Contains(known, netip.MustParseAddr(text)) {
				t.Errorf("%q: it has %s", ips, text)
			}
		}
	})
}
