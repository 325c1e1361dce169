package server_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// claim registers a machine with these claims and a key of its own.
func (p *process) claim(id fleet.InstanceID, hostname string, ips ...string) error {
	p.t.Helper()
	_, err := p.registration().RegisterAgent(within(p.t), &nstancev1.RegisterAgentRequest{
		Nonce: p.site.nonceOf(id), PublicKey: publicPEM(p.t, newKey(p.t)), Hostname: hostname, Ips: ips,
	})
	return err
}

// claimRefused checks that a claim was refused, for which field and with which text.
func claimRefused(t *testing.T, err error, field, says string) {
	t.Helper()
	v := rpc.Violations(err)
	if status.Code(err) != codes.InvalidArgument || len(v) != 1 || v[0].Field != field || !strings.Contains(v[0].Description, says) {
		t.Errorf("answered %v (%v), want %s refused: %q", err, v, field, says)
	}
}

// addressesOf returns the addresses that the provider gave a machine.
func (s *site) addressesOf(id fleet.InstanceID) (out []string) {
	for _, vm := range s.world.VMs() {
		for _, addr := range vm.Addresses {
			if vm.ID == id {
				out = append(out, addr.String())
			}
		}
	}
	return out
}

// awaitIPs waits until an instance's addresses are these.
func (p *process) awaitIPs(id fleet.InstanceID, want ...string) {
	p.t.Helper()
	eventually(p.t, "the addresses of "+string(id), func() error {
		i, err := p.instance(id)
		if err == nil && !slices.Equal(i.GetIps(), want) {
			err = rpc.Unavailable.Errorf("they are %v, want %v", i.GetIps(), want)
		}
		return err
	})
}

// TestNamesOfOthersAreRefused: a machine may only register under the name that the server gave
// it, or that the provider's name service has for it; another name is refused with its field,
// changes nothing, and is reported to operators until the machine registers.
func TestNamesOfOthersAreRefused(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		if err := p.claim(ids[1], string(ids[1])); err != nil {
			t.Fatal(err)
		}
		s.world.Rename(ids[2], "ip-10-0-0-3.r.internal")
		for _, name := range []string{
			string(ids[1]), strings.ToUpper(string(ids[1])), string(ids[2]), "ip-10-0-0-3.r.internal", "kubernetes.default.svc",
			"localhost", string(ids[0]) + ".example", "control-plane",
		} {
			claimRefused(t, p.claim(ids[0], name), "hostname", "not a name of this instance")
		}
		if i, err := p.instance(ids[0]); err != nil || i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_PENDING ||
			i.GetHostname() != "" || !strings.Contains(i.GetLastError(), "hostname") {
			t.Errorf("the instance is %v, %v, want it to tell of the refusal", i, err)
		}
		told := p.log.attr("problem", "problem")
		if p.log.attr("problem", "reason") != "RegistrationRefused" || !strings.Contains(told, string(ids[1])) || p.log.count("problem") != 1 {
			t.Errorf("told %d times, last %q", p.log.count("problem"), told)
		}
		if err := p.claim(ids[0], strings.ToUpper(string(ids[0]))); err != nil {
			t.Fatal(err)
		}
		if i, err := p.instance(ids[0]); err != nil || i.GetHostname() != string(ids[0]) || i.GetLastError() != "" {
			t.Errorf("the instance is %v, %v", i, err)
		}
		if err := p.claim(ids[2], "IP-10-0-0-3.r.internal"); err != nil {
			t.Fatal(err)
		}
		if i, err := p.instance(ids[2]); err != nil || i.GetHostname() != "ip-10-0-0-3.r.internal" {
			t.Errorf("the instance is %v, %v", i, err)
		}
	})
}

// TestNothingClaimed: an instance without claims has the name that the server gave it and the
// addresses that the provider reports.
func TestNothingClaimed(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := newborn(t)
		s.world.Readdress(id, netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("fd00::7"), netip.MustParseAddr("203.0.113.7"))
		if err := p.claim(id, ""); err != nil {
			t.Fatal(err)
		}
		if i, err := p.instance(id); err != nil || i.GetHostname() != string(id) {
			t.Errorf("the instance is %v, %v", i, err)
		}
		p.awaitIPs(id, s.addressesOf(id)...)
	})
}

// TestAddressesOfOthersAreRefused: an address that the provider did not give to the machine is
// refused; one of a family for which the provider reports none is ignored.
func TestAddressesOfOthersAreRefused(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		if err := p.claim(ids[1], "", s.addressesOf(ids[1])...); err != nil {
			t.Fatal(err)
		}
		for _, ip := range []string{s.addressesOf(ids[1])[0], "10.96.0.1", "127.0.0.1", "169.254.169.254"} {
			claimRefused(t, p.claim(ids[0], "", ip), "ips", "not an address of this instance")
		}
		if err := p.claim(ids[0], "", s.addressesOf(ids[0])[0], "2001:db8::1", "::1"); err != nil {
			t.Fatal(err)
		}
		if i, err := p.instance(ids[0]); err != nil || !slices.Equal(i.GetIps(), s.addressesOf(ids[0])) {
			t.Errorf("the instance is %v, %v, want the addresses %v", i, err, s.addressesOf(ids[0]))
		}
	})
}

// TestAddressOfALivingInstance: two machines with one address, according to the provider, are
// not both certified for it.
func TestAddressOfALivingInstance(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		first := s.addressesOf(ids[1])
		if err := p.claim(ids[1], "", first...); err != nil {
			t.Fatal(err)
		}
		own := netip.MustParseAddr("10.1.0.7")
		s.world.Readdress(ids[0], netip.MustParseAddr(first[0]), own)
		time.Sleep(time.Minute) // the create's result is outdated by then
		claimRefused(t, p.claim(ids[0], "", first[0]), "ips", "another instance")
		if err := p.claim(ids[0], "", own.String()); err != nil {
			t.Fatal(err)
		}
		p.awaitIPs(ids[0], own.String())
		s.world.Kill(ids[1])
		p.awaitPhase(ids[1], nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		time.Sleep(5 * time.Minute) // a sweep
		p.awaitIPs(ids[0], own.String(), first[0])
	})
}

// TestAddressesThatComeLate: the provider does not report the addresses of a starting machine
// yet. Its claim waits for them; without a claim it registers, and has the addresses once they
// are known.
func TestAddressesThatComeLate(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.world = fake.New(fake.Config{Boot: fake.Fixed(10 * time.Minute)})
		s.config["MORE"] = `"garbage_collection": { "registration_timeout": "1h" },`
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 2 } }`
		s.putConfig(shardID)
		p := s.start().awaitLeading()
		eventually(t, "two machines", func() error {
			if len(s.living()) != 2 {
				return rpc.Unavailable.Errorf("there are others")
			}
			return nil
		})
		ids := s.living()
		late := map[fleet.InstanceID]netip.Addr{ids[0]: netip.MustParseAddr("fd00::1"), ids[1]: netip.MustParseAddr("fd00::2")}
		refused(t, p.claim(ids[0], "", late[ids[0]].String()), codes.Unavailable, "the provider")
		if err := p.claim(ids[1], ""); err != nil {
			t.Fatal(err)
		}
		for id, addr := range late {
			s.world.Readdress(id, append([]netip.Addr{addr}, netip.MustParseAddr(s.addressesOf(id)[0]))...)
		}
		time.Sleep(time.Minute)
		if err := p.claim(ids[0], "", late[ids[0]].String()); err != nil {
			t.Fatal(err)
		}
		if i, err := p.instance(ids[0]); err != nil || !slices.Equal(i.GetIps(), s.addressesOf(ids[0])) {
			t.Errorf("the instance is %v, %v", i, err)
		}
		time.Sleep(5 * time.Minute) // a sweep
		if i, err := p.instance(ids[1]); err != nil || !slices.Contains(i.GetIps(), late[ids[1]].String()) {
			t.Errorf("the instance is %v, %v, want %s too", i, err, late[ids[1]])
		}
	})
}

// TestCertificatesNameTheInstance: whatever an agent claims, its certificates have the names
// that the server and the provider gave it, also after the provider gave it other addresses.
func TestCertificatesNameTheInstance(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.config["VARS"] = `{}, "files": {
		  "web.crt": { "kind": "certificate", "template": "web", "key": { "source": "agent", "name": "web" } } }`
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 2 } } }, "certificates": {
		  "web": { "tenants": ["*"], "kind": "server", "cn": "system:node:{{ .Instance.Hostname }}", "organization": ["system:nodes"],
		    "dns": ["{{ .Instance.FQDN }}"], "ip": ["{{ .Instance.IP4 }}"], "ttl": 24 }`
		s.putConfig(shardID)
		p := s.start()
		g := s.inhabit(p)
		p.awaitSize("web", 2)
		for _, id := range s.living() {
			g.awaitNames(id, s.addressesOf(id)[0])
		}
		id := s.living()[0]
		s.world.Readdress(id, netip.MustParseAddr("10.1.0.7"))
		time.Sleep(5 * time.Minute) // a sweep
		g.awaitNames(id, "10.1.0.7")
	})
}

// TestCertificateForIPv6: a certificate for an address of a family that the provider does not report
// yet is made once it does.
func TestCertificateForIPv6(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.config["VARS"] = `{}, "files": {
		  "web.crt": { "kind": "certificate", "template": "web", "key": { "source": "agent", "name": "web" } } }`
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 1 } } }, "certificates": {
		  "web": { "tenants": ["*"], "kind": "server", "cn": "{{ .Instance.ID }}",
		    "ip": ["{{ .Instance.IP4 }}", "{{ .Instance.IP6 }}"], "ttl": 24 }`
		s.putConfig(shardID)
		p := s.start()
		g := s.inhabit(p)
		eventually(t, "the lack of an address is told", func() error { return p.troubled("IP6") })
		id := s.living()[0]
		s.world.Readdress(id, netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("fd00::7"))
		eventually(t, "a certificate for both", func() error {
			cert, err := pki.ParseCertificate([]byte(g.read(id, "web.crt")))
			if err != nil {
				return err
			}
			if have := fmt.Sprint(cert.IPAddresses); have != "[10.1.0.7 fd00::7]" {
				return errors.New(have)
			}
			return nil
		})
	})
}

// TestRecordedNameOfAnother: a host name in a record that neither the server nor the provider gave goes
// once the provider shows others, and certificates for it are replaced; one that the provider gave stays.
func TestRecordedNameOfAnother(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.config["VARS"] = `{}, "files": {
		  "web.crt": { "kind": "certificate", "template": "web", "key": { "source": "agent", "name": "web" } } }`
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 2 } } }, "certificates": {
		  "web": { "tenants": ["*"], "kind": "server", "cn": "system:node:{{ .Instance.Hostname }}", "organization": ["system:nodes"],
		    "dns": ["{{ .Instance.FQDN }}"], "ip": ["{{ .Instance.IP4 }}"], "ttl": 24 }`
		s.putConfig(shardID)
		p := s.start()
		g := s.inhabit(p)
		p.awaitSize("web", 2)
		ids := s.living()
		g.awaitNames(ids[0], s.addressesOf(ids[0])[0])
		s.world.Rename(ids[0], "ip-10-0-0-8.zone.example")
		s.world.Rename(ids[1], "ip-10-0-0-9.zone.example")
		p.stop()
		p.ends()
		for n, name := range []string{"kubernetes.default.svc", "ip-10-0-0-9.zone.example"} {
			s.rewrite(ids[n], string(ids[n]), name)
		}
		q := s.start(named("b")).awaitLeading()
		eventually(t, "the host names", func() error {
			for n, want := range []string{string(ids[0]), "ip-10-0-0-9.zone.example"} {
				if i, err := q.instance(ids[n]); err != nil || i.GetHostname() != want {
					return fmt.Errorf("%s is named %s, %w", ids[n], i.GetHostname(), err)
				}
			}
			return nil
		})
		g.awaitNames(ids[0], s.addressesOf(ids[0])[0])
	})
}

// rewrite changes the host name in an instance's record in the store.
func (s *site) rewrite(id fleet.InstanceID, from, to string) {
	s.t.Helper()
	key := s.instanceKey(id)
	text := s.get(key)
	changed := strings.Replace(text, `"hostname":"`+from+`"`, `"hostname":"`+to+`"`, 1)
	if changed == text {
		s.t.Fatalf("%s has no such host name: %s", key, text)
	}
	s.put(key, changed)
}

// awaitNames waits until a machine's certificate has its name and one address.
func (g *guests) awaitNames(id fleet.InstanceID, ip string) {
	g.site.t.Helper()
	eventually(g.site.t, "a certificate for "+ip, func() error {
		cert, err := pki.ParseCertificate([]byte(g.read(id, "web.crt")))
		if err != nil {
			return err
		}
		if cert.Subject.CommonName != "system:node:"+string(id) || !slices.Equal(cert.DNSNames, []string{string(id)}) ||
			len(cert.IPAddresses) != 1 || cert.IPAddresses[0].String() != ip {
			return rpc.Unavailable.Errorf("it is for %s, %v, %v", cert.Subject, cert.DNSNames, cert.IPAddresses)
		}
		return nil
	})
}

// TestClaimsAreToldToThoseWhoWatch: a watch receives the refused claim and its end.
func TestClaimsAreToldToThoseWhoWatch(t *testing.T) {
	simulated(t, func(t *testing.T) {
		_, p, id := newborn(t)
		w := p.watchErrors("default")
		claimRefused(t, p.claim(id, "kubernetes.default.svc"), "hostname", "not a name of this instance")
		refusal := func(over bool) func(*nstancev1.WatchErrorsResponse) bool {
			return func(m *nstancev1.WatchErrorsResponse) bool {
				return m.GetReason() == "RegistrationRefused" && m.GetInstanceId() == string(id) && m.GetOver() == over
			}
		}
		if m, _ := w.next("the refusal", refusal(false)); !strings.Contains(m.GetMessage(), "kubernetes.default.svc") || m.GetGroup() != "web" {
			t.Errorf("told %v", m)
		}
		if err := p.claim(id, ""); err != nil {
			t.Fatal(err)
		}
		w.next("its end", refusal(true))
	})
}

// TestAddressesAfterAFailedQuestion: the provider, which has reported no address of a machine
// yet, fails while that registers without claims. The record has the addresses as soon as the
// provider responds, not only after the next sweep.
func TestAddressesAfterAFailedQuestion(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		addr := s.addressesOf(ids[0])[0]
		p.stop()
		p.ends()
		s.world.Readdress(ids[0])
		q := s.start(named("b")).awaitLeading()
		time.Sleep(time.Second) // the list of the takeover
		s.world.Readdress(ids[0], netip.MustParseAddr(addr))
		s.world.FailNext(fake.OpGet, 1, fake.Fault{Err: errors.New("the provider is down")})
		if err := q.claim(ids[0], ""); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		q.awaitIPs(ids[0], addr)
		if took := time.Since(began); took > 100*time.Millisecond { // simulated
			t.Errorf("the address came after %s", took)
		}
	})
}
