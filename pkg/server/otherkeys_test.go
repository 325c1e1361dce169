package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// registered registers a machine with a key, and returns its certificate.
func (p *process) registered(id fleet.InstanceID, key ed25519.PrivateKey) *pki.Keypair {
	p.t.Helper()
	resp, err := p.registerWith(p.site.nonceOf(id), key)
	if err != nil {
		p.t.Fatal(err)
	}
	return renewed(p.t, resp.GetIdentity(), key)
}

// TestRenewedKeyOfAnother: the key of a renewal is reserved for its instance, on this leader and
// the next, until the instance is gone.
func TestRenewedKeyOfAnother(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		first, second := newKey(t), newKey(t)
		pair := p.registered(ids[0], first)
		for range 2 { // the reply to the first call was lost
			if _, err := p.renewAgent(pair, second); err != nil {
				t.Fatal(err)
			}
		}
		_, err := p.registerWith(s.nonceOf(ids[1]), second)
		keyTaken(t, err, "public_key", ids[0])
		own := newKey(t)
		other := p.registered(ids[1], own)
		for _, key := range []ed25519.PrivateKey{first, second} {
			_, err = p.renewAgent(other, key)
			keyTaken(t, err, "public_key", ids[0])
		}
		if _, err := p.renewAgent(other, newKey(t)); err != nil {
			t.Errorf("a key of its own: %v", err)
		}
		p.ends()
		q := s.start(named("b")).awaitLeading()
		_, err = q.registerWith(s.nonceOf(ids[2]), second)
		keyTaken(t, err, "public_key", ids[0])
		_, err = q.renewAgent(other, second)
		keyTaken(t, err, "public_key", ids[0])
		if _, err := q.renewAgent(pair, second); err != nil {
			t.Errorf("the instance's own key on the next leader: %v", err)
		}
		s.world.Kill(ids[0])
		q.awaitPhase(ids[0], nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		if _, err := q.registerWith(s.nonceOf(ids[2]), second); err != nil {
			t.Errorf("the key of one that is gone: %v", err)
		}
	})
}

// keyStream opens a machine's stream of key requests, and waits for the first.
func (m *machine) keyStream(t *testing.T) nstancev1.AgentServiceClient {
	t.Helper()
	agent := nstancev1.NewAgentServiceClient(m.conn)
	stream, err := agent.KeyGenRequests(context.Background(), &nstancev1.KeyGenRequestsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return agent
}

func ecdsaPEM(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// TestSubmitKeyOfAnother: a key that one machine submitted, or registered with, is refused from
// another by name, with its whole batch.
func TestSubmitKeyOfAnother(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 2 } }`)
		s.config["VARS"] += `, "require_files": false`
		s.putConfig(shardID)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		ids := s.living()
		a, b := s.agents.of(ids[0]), s.agents.of(ids[1])
		agentA, agentB := a.keyStream(t), b.keyStream(t)
		submit := func(agent nstancev1.AgentServiceClient, web, peer string) error {
			_, err := agent.SubmitPublicKeys(within(t), &nstancev1.SubmitPublicKeysRequest{PublicKeys: map[string]string{"web": web, "peer": peer}})
			return err
		}
		web, peer := publicPEM(t, newKey(t)), ecdsaPEM(t)
		for range 2 {
			if err := submit(agentA, web, peer); err != nil {
				t.Fatal(err)
			}
		}
		own := ecdsaPEM(t)
		keyTaken(t, submit(agentB, web, own), `public_keys["web"]`, a.id)
		keyTaken(t, submit(agentB, publicPEM(t, newKey(t)), peer), `public_keys["peer"]`, a.id)
		keyTaken(t, submit(agentB, publicPEM(t, a.key), own), `public_keys["web"]`, a.id)
		if err := submit(agentA, publicPEM(t, newKey(t)), own); err != nil {
			t.Errorf("a key of a submission that was refused is taken: %v", err)
		}
		if err := submit(agentB, publicPEM(t, newKey(t)), ecdsaPEM(t)); err != nil {
			t.Errorf("keys of its own: %v", err)
		}
	})
}

// TestImageWithKeysOfAnother: a machine starts with another one's keys and without its owner
// file. It generates new ones and gets its files; the other's are unaffected, and the next
// leader knows them from the records.
func TestImageWithKeysOfAnother(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 1 } }`)
		p := s.start()
		var first fleet.InstanceID
		g := s.inhabit(p, func(g *guests) {
			g.disk = func(id fleet.InstanceID) error {
				if first == "" {
					first = id
					return nil
				}
				for _, name := range []string{"web.key", "web.pub", "peer.key", "peer.pub"} {
					if err := g.copyKey(first, id, name); err != nil {
						return err
					}
				}
				return nil
			}
		})
		p.awaitSize("web", 1)
		a := s.living()[0]
		g.awaitFile(a, "app.conf", "info "+string(a))
		before := g.readKey(a, "web.key")
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 3)
		for _, id := range s.living() {
			g.awaitFile(id, "app.conf", "info "+string(id))
			g.checkCertificate(id, "web")
			g.checkCertificate(id, "peer")
			aside, err := filepath.Glob(g.path(id, "keys", "*.key.in-use-*"))
			if want := map[bool]int{true: 0, false: 2}[id == a]; err != nil || len(aside) != want {
				t.Errorf("%s has set aside %v, %v", id, aside, err)
			}
			if id != a && g.readKey(id, "web.key") == before {
				t.Errorf("%s uses the key of %s", id, a)
			}
		}
		if g.readKey(a, "web.key") != before {
			t.Errorf("%s uses another key", a)
		}
		s.successorKnows(p, before)
	})
}

// successorKnows starts another server, which no agent uses yet, and registers one more machine
// with another one's key.
func (s *site) successorKnows(p *process, key string) {
	s.t.Helper()
	private, err := pki.ParsePrivateKey([]byte(key))
	if err != nil {
		s.t.Fatal(err)
	}
	p.ends()
	q := s.start(named("b")).awaitLeading()
	before := map[fleet.InstanceID]bool{}
	for _, id := range s.living() {
		before[id] = true
	}
	if _, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(4))}); err != nil {
		s.t.Fatal(err)
	}
	var born fleet.InstanceID
	eventually(s.t, "one more machine", func() error {
		for _, vm := range s.world.VMs() {
			if !before[vm.ID] {
				born = vm.ID
				return nil
			}
		}
		return os.ErrNotExist
	})
	_, err = q.registerWith(s.nonceOf(born), private)
	keyTaken(s.t, err, "public_key")
}

func (g *guests) copyKey(from, to fleet.InstanceID, name string) error {
	body, err := os.ReadFile(g.path(from, "keys", name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(g.path(to, "keys"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(g.path(to, "keys", name), body, 0o600)
}

func (g *guests) readKey(id fleet.InstanceID, name string) string {
	body, err := os.ReadFile(g.path(id, "keys", name))
	if err != nil {
		return err.Error()
	}
	return string(body)
}
