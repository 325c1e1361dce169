package server_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// newborn starts a server whose group has one machine that has not registered.
func newborn(t *testing.T, more ...string) (*site, *process, fleet.InstanceID) {
	t.Helper()
	s := newSite(t)
	s.config["MORE"] = strings.Join(more, "")
	s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 1 } }`
	s.putConfig(shardID)
	p := s.start().awaitLeading()
	return s, p, s.awaitMachine()
}

// awaitMachine waits for the first machine.
func (s *site) awaitMachine() (id fleet.InstanceID) {
	s.t.Helper()
	eventually(s.t, "a machine", func() error {
		ids := s.living()
		if len(ids) == 0 {
			return errors.New("there is none")
		}
		id = ids[0]
		return nil
	})
	return id
}

// nonceOf returns the nonce that the machine was created with.
func (s *site) nonceOf(id fleet.InstanceID) string {
	s.t.Helper()
	spec, ok := s.world.Spec(id)
	if !ok {
		s.t.Fatalf("no machine %s", id)
	}
	return spec.Bootstrap.Nonce
}

func (p *process) registerWith(token string, key ed25519.PrivateKey) (*nstancev1.RegisterAgentResponse, error) {
	return p.registration().RegisterAgent(within(p.t), &nstancev1.RegisterAgentRequest{Nonce: token, PublicKey: publicPEM(p.t, key)})
}

func TestRegisterAgent(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := newborn(t)
		if i, err := p.instance(id); err != nil || i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_PENDING {
			t.Fatalf("before: %v, %v", i, err)
		}
		key := newKey(t)
		resp, err := p.registration().RegisterAgent(within(t), &nstancev1.RegisterAgentRequest{
			Nonce: s.nonceOf(id), PublicKey: publicPEM(t, key), Hostname: string(id), Ips: []string{"::ffff:" + s.addressesOf(id)[0]},
		})
		if err != nil {
			t.Fatal(err)
		}
		cert, err := pki.ParseCertificate([]byte(resp.GetIdentity().GetCertificate()))
		if err != nil {
			t.Fatal(err)
		}
		caller, err := pki.ParseCaller(cert, clusterID)
		if err != nil || caller.Role != pki.RoleAgent || caller.ID != string(id) || caller.Tenant != "default" {
			t.Errorf("certificate is of %+v, %v", caller, err)
		}
		if err := pki.CheckPair(cert, key); err != nil {
			t.Error(err)
		}
		if !resp.GetIdentity().GetNotAfter().AsTime().Equal(cert.NotAfter) || resp.GetIdentity().GetCaChain() != string(s.trust().Bundle.PEM()) {
			t.Errorf("identity is %v", resp.GetIdentity())
		}
		i, err := p.instance(id)
		if err != nil || i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING || i.GetHostname() != string(id) ||
			!slices.Equal(i.GetIps(), s.addressesOf(id)) || i.GetRegisteredAt() == nil {
			t.Errorf("after: %v, %v", i, err)
		}

		// A lost reply must not block a machine; the key is bound, though.
		again, err := p.registerWith(s.nonceOf(id), key)
		if err != nil || again.GetIdentity().GetCertificate() == "" {
			t.Errorf("the same key again: %v", err)
		}
		_, err = p.registerWith(s.nonceOf(id), newKey(t))
		refused(t, err, codes.PermissionDenied, "another key")
		_, err = p.registration().RegisterAgent(within(t), &nstancev1.RegisterAgentRequest{
			Nonce: s.nonceOf(id), PublicKey: publicPEM(t, key), Hostname: "other", Ips: []string{"10.9.9.9"},
		})
		if err != nil {
			t.Errorf("the same key again, from a machine that says something else of itself: %v", err)
		}
		if i, err := p.instance(id); err != nil || i.GetHostname() != string(id) || !slices.Equal(i.GetIps(), s.addressesOf(id)) {
			t.Errorf("a repetition changed the record: %v, %v", i, err)
		}
	})
}

// TestRegisterAcrossServers: the next leader honours a registration.
func TestRegisterAcrossServers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := newborn(t)
		token, key := s.nonceOf(id), newKey(t)
		if _, err := p.registerWith(token, key); err != nil {
			t.Fatal(err)
		}
		p.ends()
		q := s.start(named("b")).awaitLeading()
		if _, err := q.registerWith(token, key); err != nil {
			t.Errorf("the same key on the next leader: %v", err)
		}
		_, err := q.registerWith(token, newKey(t))
		refused(t, err, codes.PermissionDenied, "another key")
	})
}

// TestRegisterLostReplies loses the store's reply to the write that binds the key, once after
// applying it and once without. The call succeeds either way.
func TestRegisterLostReplies(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"applied": objecttest.ReplyLost, "not applied": objecttest.Dropped} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p, id := newborn(t)
			struck := 0
			s.store.Set(func(r objecttest.Request) objecttest.Outcome {
				if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "instance/") && struck == 0 {
					struck++
					return objecttest.Outcome{Fault: fault}
				}
				return objecttest.Outcome{}
			})
			if _, err := p.registerWith(s.nonceOf(id), newKey(t)); err != nil {
				t.Error(err)
			}
			s.store.Set(nil)
			if struck != 1 {
				t.Fatalf("%d writes were struck", struck)
			}
			_, err := p.registerWith(s.nonceOf(id), newKey(t))
			refused(t, err, codes.PermissionDenied, "another key")
		}))
	}
}

// TestRegisterWhileTheStoreIsAway: nothing is acknowledged, and the same call succeeds later.
func TestRegisterWhileTheStoreIsAway(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := newborn(t)
		s.store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		key := newKey(t)
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := p.registration().RegisterAgent(ctx, &nstancev1.RegisterAgentRequest{Nonce: s.nonceOf(id), PublicKey: publicPEM(t, key)})
		if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Unavailable {
			t.Errorf("answered %v", err)
		}
		s.store.Set(nil)
		if _, err := p.registerWith(s.nonceOf(id), key); err != nil {
			t.Error(err)
		}
	})
}

// TestRegisterRefusals presents nonces that are invalid for the server, and requests with false
// claims.
func TestRegisterRefusals(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := newborn(t, `"advertise": { "election_addr": "nstance.internal:0" }, "leader_network": { "ipv4": "10.9.9.9" },`)
		good := func(edit func(*nonce.Claims)) string {
			c := claimsOf(id)
			edit(&c)
			return mint(t, s.trust(), c)
		}
		unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"kind": "agent",
			"sub": string(id)}).SignedString(jwt.UnsafeAllowNoneSignatureType)
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := s.trust()
		elsewhere.NonceKey = newKey(t)
		hour := time.Hour
		for name, c := range map[string]struct {
			token string
			says  string
		}{
			"expired": {good(func(c *nonce.Claims) { c.NotBefore, c.ExpiresAt = c.NotBefore.Add(-2*hour), c.ExpiresAt.Add(-hour) }),
				"expired"},
			"another cluster": {good(func(c *nonce.Claims) { c.ClusterID = "other" }), `for "other"`},
			"another shard":   {good(func(c *nonce.Claims) { c.Shard = "dev-2" }), `"dev-2"`},
			"an operator's":   {mint(t, s.trust(), operatorClaims(newID(t, fleet.OperatorKind))), "operator"},
			"another key's":   {mint(t, elsewhere, claimsOf(id)), "signed"},
			"alg none":        {unsigned, "EdDSA"},
			"garbage":         {"garbage", "malformed"},
			"none":            {"", "malformed"},
			"too long":        {strings.Repeat("x", 5000), "at most"},
			"no instance id":  {good(func(c *nonce.Claims) { c.Subject = "unknown" }), "not an instance id"},
		} {
			_, err := p.registerWith(c.token, newKey(t))
			t.Log(name, ":", err)
			refused(t, err, codes.PermissionDenied, "registration nonce", c.says)
		}
		_, err = p.registerWith(mint(t, s.trust(), claimsOf(newID(t, "knd"))), newKey(t))
		refused(t, err, codes.NotFound, "no such instance")
		_, err = p.registerWith(good(func(c *nonce.Claims) { c.Tenant = "prod" }), newKey(t))
		refused(t, err, codes.NotFound, "no such instance") // for that tenant

		token := s.nonceOf(id)
		for name, c := range map[string]struct {
			edit  func(*nstancev1.RegisterAgentRequest)
			field string
		}{
			"no key": {func(r *nstancev1.RegisterAgentRequest) { r.PublicKey = "" }, "public_key"},
			"garbage for a key": {func(r *nstancev1.RegisterAgentRequest) {
				r.PublicKey = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
			}, "public_key"},
			"a private key":           {func(r *nstancev1.RegisterAgentRequest) { r.PublicKey = privatePEM(t) }, "public_key"},
			"the leader's address":    {func(r *nstancev1.RegisterAgentRequest) { r.Ips = []string{"10.9.9.9"} }, "ips"},
			"no address":              {func(r *nstancev1.RegisterAgentRequest) { r.Ips = []string{"localhost"} }, "ips"},
			"every address":           {func(r *nstancev1.RegisterAgentRequest) { r.Ips = []string{"0.0.0.0"} }, "ips"},
			"too many addresses":      {func(r *nstancev1.RegisterAgentRequest) { r.Ips = make([]string, 33) }, "ips"},
			"a server's name":         {func(r *nstancev1.RegisterAgentRequest) { r.Hostname = "Nstance.Internal" }, "hostname"},
			"no host name":            {func(r *nstancev1.RegisterAgentRequest) { r.Hostname = "a b" }, "hostname"},
			"a host name of 254 long": {func(r *nstancev1.RegisterAgentRequest) { r.Hostname = strings.Repeat("a.", 126) + "aa" }, "hostname"},
		} {
			req := &nstancev1.RegisterAgentRequest{Nonce: token, PublicKey: publicPEM(t, newKey(t))}
			c.edit(req)
			_, err := p.registration().RegisterAgent(within(t), req)
			if status.Code(err) != codes.InvalidArgument || len(fields(err)) != 1 || fields(err)[0] != c.field {
				t.Errorf("%s: %v (%v), want a violation of %s", name, err, fields(err), c.field)
			}
		}
		if i := s.records()[0]; i.Phase != fleet.Pending || i.PublicKeySHA256 != "" {
			t.Errorf("refusals changed the record: %+v", i)
		}
	})
}

func privatePEM(t *testing.T) string {
	t.Helper()
	text, err := pki.EncodePrivateKey(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRegisterDeleted: the nonce of a deleted instance is invalid, even with the key that it was
// used with.
func TestRegisterDeleted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := newborn(t)
		token, key := s.nonceOf(id), newKey(t)
		if _, err := p.registerWith(token, key); err != nil {
			t.Fatal(err)
		}
		s.world.Kill(id)
		p.awaitPhase(id, nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		for _, k := range []ed25519.PrivateKey{key, newKey(t)} {
			_, err := p.registerWith(token, k)
			refused(t, err, codes.PermissionDenied)
		}
	})
}
