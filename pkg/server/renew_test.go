package server_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// renewed combines an issued certificate with its key.
func renewed(t *testing.T, identity *nstancev1.Identity, key ed25519.PrivateKey) *pki.Keypair {
	t.Helper()
	cert, err := pki.ParseCertificate([]byte(identity.GetCertificate()))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if !identity.GetNotAfter().AsTime().Equal(cert.NotAfter) {
		t.Errorf("answered with the end %s, the certificate's is %s", identity.GetNotAfter().AsTime(), cert.NotAfter)
	}
	return pair
}

func (p *process) renewAgent(pair *pki.Keypair, key ed25519.PrivateKey) (*nstancev1.Identity, error) {
	resp, err := nstancev1.NewAgentServiceClient(p.site.dial(p.agentAddr(), pair)).RenewCertificate(within(p.t),
		&nstancev1.AgentServiceRenewCertificateRequest{PublicKey: publicPEM(p.t, key)})
	return resp.GetIdentity(), err
}

func (p *process) renewOperator(pair *pki.Keypair, key ed25519.PrivateKey) (*nstancev1.Identity, error) {
	resp, err := nstancev1.NewOperatorServiceClient(p.site.dial(p.operatorAddr(), pair)).RenewCertificate(within(p.t),
		&nstancev1.OperatorServiceRenewCertificateRequest{PublicKey: publicPEM(p.t, key)})
	return resp.GetIdentity(), err
}

// TestAgentRenews: the stream continues, the certificate is for the same instance and the new
// key, and the nonce stays bound to the key it was spent with.
func TestAgentRenews(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		m := s.agents.of(s.living()[0])
		key := newKey(t)
		identity, err := p.renewAgent(m.pair, key)
		if err != nil {
			t.Fatal(err)
		}
		pair := renewed(t, identity, key)
		was, is := m.pair.Certificate(), pair.Certificate()
		if is.URIs[0].String() != was.URIs[0].String() || is.SerialNumber.Cmp(was.SerialNumber) == 0 || is.NotAfter.Before(was.NotAfter) {
			t.Errorf("renewed %s until %s as %s until %s", was.URIs[0], was.NotAfter, is.URIs[0], is.NotAfter)
		}
		if identity.GetCaChain() != string(s.trust().Bundle.PEM()) {
			t.Errorf("answered with the chain %q", identity.GetCaChain())
		}
		if err := m.stream.Send(&nstancev1.ReportHealthRequest{Sequence: 2}); err != nil {
			t.Errorf("the open stream broke: %v", err)
		}
		if i, err := p.instance(m.id); err != nil || !i.GetConnected() {
			t.Errorf("after the renewal the instance is %v, %v", i, err)
		}
		if _, err := p.renewAgent(pair, newKey(t)); err != nil {
			t.Errorf("the new certificate is no good: %v", err)
		}
		if r := s.record(m.id); r.PublicKeySHA256 != pki.PublicKeySHA256(pki.PublicKey(m.key)) {
			t.Errorf("the record is bound to the key %s", r.PublicKeySHA256)
		}
		spec, _ := s.world.Spec(m.id)
		again := func(key ed25519.PrivateKey) error {
			_, err := p.registration().RegisterAgent(within(t), &nstancev1.RegisterAgentRequest{
				Nonce: spec.Bootstrap.Nonce, PublicKey: publicPEM(t, key), Hostname: spec.Hostname,
			})
			return err
		}
		if err := again(m.key); err != nil {
			t.Errorf("the nonce is no good any more for the key it was spent with: %v", err)
		}
		refused(t, again(key), codes.PermissionDenied, "another key")
	})
}

// record returns an instance's stored record.
func (s *site) record(id fleet.InstanceID) fleet.Instance {
	s.t.Helper()
	all := s.records()
	n := slices.IndexFunc(all, func(i fleet.Instance) bool { return i.ID == id })
	if n < 0 {
		s.t.Fatalf("there is no record of %s", id)
	}
	return all[n]
}

func TestAgentsThatMayNotRenew(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		ids := s.living()
		m := s.agents.of(ids[0])
		_, err := p.renewAgent(m.pair, m.key)
		refused(t, err, codes.InvalidArgument, "current certificate")
		if got := fields(err); !slices.Equal(got, []string{"public_key"}) {
			t.Errorf("the answer names %v", got)
		}
		for _, bad := range []string{"", "hello", strings.Repeat("x", 1<<15), string(pki.EncodeCertificate(m.pair.Certificate()))} {
			_, err := nstancev1.NewAgentServiceClient(s.dial(p.agentAddr(), m.pair)).RenewCertificate(within(t),
				&nstancev1.AgentServiceRenewCertificateRequest{PublicKey: bad})
			refused(t, err, codes.InvalidArgument, "public_key")
		}
		_, err = p.renewAgent(issue(t, s.trust().CA, pki.RoleAgent, "prod", ids[0], time.Hour), newKey(t))
		refused(t, err, codes.Unauthenticated, "there is no instance")
		_, err = p.renewAgent(issue(t, s.trust().CA, pki.RoleAgent, "default", newID(t, "knd"), time.Hour), newKey(t))
		refused(t, err, codes.Unauthenticated, "there is no instance")
		_, err = p.renewAgent(issue(t, s.trust().CA, pki.RoleOperator, "default", newID(t, fleet.OperatorKind), time.Hour), newKey(t))
		refused(t, err, codes.PermissionDenied, "role")

		for range 3 {
			if _, err := p.renewAgent(m.pair, newKey(t)); err != nil {
				t.Fatal(err)
			}
		}
		_, err = p.renewAgent(m.pair, newKey(t))
		refused(t, err, codes.ResourceExhausted, "too many renewals")
		if _, err := p.renewAgent(s.agents.of(ids[1]).pair, newKey(t)); err != nil {
			t.Errorf("another instance pays for it: %v", err)
		}

		size := int32(0)
		if _, err := p.operator("default").UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "web", Size: &size}); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(ids[1], nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		_, err = p.renewAgent(s.agents.of(ids[1]).pair, newKey(t))
		refused(t, err, codes.Unauthenticated, string(ids[1]))
	})
}

func TestOperatorRenews(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		o, _ := s.operator("prod")
		pair := issue(t, s.trust().CA, pki.RoleOperator, "prod", o.ID, 30*24*time.Hour)
		caller, err := pki.ParseCaller(pair.Certificate(), clusterID)
		if err != nil {
			t.Fatal(err)
		}
		key := newKey(t)
		identity, err := p.renewOperator(pair, key)
		if err != nil {
			t.Fatal(err)
		}
		next := renewed(t, identity, key)
		got, err := pki.ParseCaller(next.Certificate(), clusterID)
		if err != nil || got.Tenant != "prod" || got.ID != caller.ID || got.Role != pki.RoleOperator {
			t.Errorf("renewed as %+v, %v", got, err)
		}
		if d := caller.NotAfter.Sub(got.NotAfter); d > 5*time.Second {
			t.Errorf("the renewal cut the certificate short by %s", d)
		}
	})
}

// TestServerRenewsItsCertificate: at two thirds of its life, with a new key, while open streams
// continue.
func TestServerRenewsItsCertificate(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start(func(c *server.Config) { c.Times.Certificate = 6 * time.Second })
		s.populate(p)
		p.awaitSize("web", 2)
		m := s.agents.of(s.living()[0])
		shown := func() *x509.Certificate {
			t.Helper()
			e := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(s.trust().Bundle, m.pair), Now: time.Now}
			state, err := s.handshake(loopback, p.agentAddr(), e.Client(loopback, shardID))
			if err != nil {
				t.Fatal(err)
			}
			return state.PeerCertificates[0]
		}
		first := shown()
		p.await("server certificate renewed")
		if at := time.Since(pki.RenewAt(first)); at < 0 || at > 310*time.Millisecond { // it is checked each twentieth of its life
			t.Errorf("renewed %s after two thirds of its life", at)
		}
		if cert := shown(); cert.SerialNumber.Cmp(first.SerialNumber) == 0 || cert.PublicKey.(ed25519.PublicKey).Equal(first.PublicKey) {
			t.Errorf("renewed as %s, with the same key or the same number", cert.SerialNumber)
		}
		if err := m.stream.Send(&nstancev1.ReportHealthRequest{Sequence: 2}); err != nil {
			t.Errorf("the open stream broke: %v", err)
		}
		if p.log.count("server certificate renewed") != 1 {
			t.Errorf("renewed %d times", p.log.count("server certificate renewed"))
		}
	})
}

// TestBundleOfTwoCAs: certificates of either CA are accepted, of agents, operators and the
// shard's other servers, and all receive both CAs.
func TestBundleOfTwoCAs(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]func(ours, next string) string{
		"ours first": func(ours, next string) string { return ours + next },
		"ours last":  func(ours, next string) string { return next + ours },
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			p.ends()
			next, err := pki.NewCA(pki.CAConfig{Cluster: clusterID, Key: newKey(t), Now: time.Now(), Random: rand.Reader})
			if err != nil {
				t.Fatal(err)
			}
			ours := s.trust().CA
			alone := s.get("cluster/ca.crt")
			if _, err := secrets.TrustCAs(context.Background(), s.trustConfig(), pki.NewBundle(next.Certificate())); err != nil {
				t.Fatal(err)
			}
			s.put("cluster/ca.crt", order(alone, string(pki.EncodeCertificate(next.Certificate()))))
			q, r := s.start(), s.start(named("b"))
			eventually(t, "one of the two leads", func() error {
				if q.log.count("ready to act")+r.log.count("ready to act") == 0 {
					return fmt.Errorf("none does")
				}
				return nil
			})
			if r.log.count("ready to act") > 0 {
				q, r = r, q
			}
			r.awaitPeer()
			id := s.living()[0]
			for _, ca := range []*pki.CA{ours, next} {
				identity, err := q.renewAgent(issue(t, ca, pki.RoleAgent, "default", id, time.Hour), newKey(t))
				if err != nil {
					t.Fatalf("an agent of %s: %v", ca.Certificate().SerialNumber, err)
				}
				if n := strings.Count(identity.GetCaChain(), "BEGIN CERTIFICATE"); n != 2 {
					t.Errorf("the answer names %d CAs", n)
				}
				o, _ := s.operator("default")
				if _, err := q.as(issue(t, ca, pki.RoleOperator, "default", o.ID, time.Hour)).ListGroups(context.Background(),
					&nstancev1.ListGroupsRequest{}); err != nil {
					t.Errorf("an operator of %s: %v", ca.Certificate().SerialNumber, err)
				}
			}
		}))
	}
}

// TestRealAgentsRenew runs agents through several certificate lifetimes: keys are new each time,
// and no stream breaks.
func TestRealAgentsRenew(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start(func(c *server.Config) { c.Times.ClientCertificate = 10 * time.Second })
		g := s.inhabit(p)
		p.awaitSize("web", 2)
		ids := s.living()
		identity := func(id fleet.InstanceID) *pki.Keypair {
			t.Helper()
			var pair *pki.Keypair
			eventually(t, "a pair of "+string(id), func() error { // a renewal may be between the two files
				cert, err := os.ReadFile(g.path(id, "identity", "identity.crt"))
				if err != nil {
					return err
				}
				key, err := os.ReadFile(g.path(id, "identity", "identity.key"))
				if err != nil {
					return err
				}
				pair, err = pki.ParseKeypair(cert, key)
				return err
			})
			return pair
		}
		first := identity(ids[0]).Certificate()
		time.Sleep(time.Until(first.NotAfter) + time.Second) // the first ones have certainly expired
		if n := p.log.count("certificate renewed"); n < 2 || n > 12 {
			t.Errorf("%d renewals of two agents in the life of one certificate", n)
		}
		next := identity(ids[0]).Certificate()
		if next.SerialNumber.Cmp(first.SerialNumber) == 0 || next.PublicKey.(ed25519.PublicKey).Equal(first.PublicKey) {
			t.Error("the agent has the certificate, or the key, of the beginning")
		}
		if after := s.living(); !slices.Equal(after, ids) {
			t.Errorf("%v live, were %v", after, ids)
		}
		for _, id := range ids {
			if i, err := p.instance(id); err != nil || !i.GetConnected() || time.Since(i.GetLastReportAt().AsTime()) > 3*time.Second {
				t.Errorf("after its first certificate's end %s is %v, %v", id, i, err)
			}
		}
		if n := len(s.world.Calls(fake.OpGet)); n > 0 {
			t.Errorf("the provider was asked %d times about machines whose streams broke", n)
		}
	})
}
