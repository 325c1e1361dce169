package agent_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestUnusableDirectory: what another start may find changed ends Run at once, with an error
// that names the file.
func TestUnusableDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*fixture)
		want  []string
	}{
		"no CA":              {func(f *fixture) { os.Remove(filepath.Join(f.dir, "ca.crt")) }, []string{"ca.crt is missing", "userdata"}},
		"CA is garbage":      {func(f *fixture) { f.put("ca.crt", "hello") }, []string{"ca.crt"}},
		"CA is huge":         {func(f *fixture) { f.put("ca.crt", strings.Repeat("x", 2<<20)) }, []string{"ca.crt", "longer than"}},
		"no nonce":           {func(f *fixture) { os.Remove(filepath.Join(f.dir, "nonce.jwt")) }, []string{"nonce.jwt is missing", "userdata"}},
		"empty nonce":        {func(f *fixture) { f.put("nonce.jwt", " \n") }, []string{"nonce.jwt is missing"}},
		"nonce is garbage":   {func(f *fixture) { f.put("nonce.jwt", "hello") }, []string{"nonce.jwt", "not a JWT"}},
		"nonce of no shard":  {func(f *fixture) { f.put("nonce.jwt", nonce(cluster, "")) }, []string{"nonce.jwt", "shard"}},
		"nonce of a bad one": {func(f *fixture) { f.put("nonce.jwt", nonce("Ex/ample", shard)) }, []string{"nonce.jwt", "cluster", `"Ex/ample"`}},
		"key is garbage":     {func(f *fixture) { f.put("identity.key", "hello") }, []string{"identity.key"}},
		"key is a folder": {func(f *fixture) { os.Mkdir(filepath.Join(f.dir, "identity.key"), 0o700) },
			[]string{"private key", "is a directory"}},
		"no directory": {func(f *fixture) { os.RemoveAll(f.dir) }, []string{"ca.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				server := f.up("10.0.0.1")
				c.spoil(f)
				err := agent.Run(f.t.Context(), f.config())
				if err == nil {
					t.Fatal("the agent ended without an error")
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error %q does not say %q", err, want)
					}
				}
				if len(server.seen().registrations) != 0 {
					t.Error("the agent registered")
				}
			})
		})
	}
}

func TestRunChecksItsConfig(t *testing.T) {
	if err := agent.Run(context.Background(), agent.Config{}); err == nil {
		t.Fatal("an empty config ran")
	}
}

// TestUnusableCertificate: with a nonce the agent registers again; without one it stays up
// idle.
func TestUnusableCertificate(t *testing.T) {
	foreign := func(f *fixture) {
		key := must(pki.GenerateKey(rand.Reader))(f.t)
		cert := must(f.ca.IssueAgent(pki.ClientRequest{
			Tenant: "default", ID: instanceID, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: time.Hour,
		}, rand.Reader))(f.t)
		f.put("identity.crt", string(pki.EncodeCertificate(cert)))
	}
	for name, spoil := range map[string]func(*fixture){
		"garbage":        func(f *fixture) { f.put("identity.crt", "hello") },
		"of another key": foreign,
		"without a key":  func(f *fixture) { os.Remove(filepath.Join(f.dir, "identity.key")) },
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				server := f.up("10.0.0.1")
				p := f.start(f.config())
				settle(time.Second)
				p.end()
				spoil(f)
				p = f.start(f.config())
				settle(time.Hour)
				if s := f.status(); s.State != agent.StateRejected || !strings.Contains(s.Reason, "nonce.jwt") {
					t.Errorf("without a nonce: %+v", s)
				}
				p.end()
				f.put("nonce.jwt", nonce(cluster, shard))
				p = f.start(f.config())
				settle(time.Second)
				if s := f.status(); s.State != agent.StateConnected || len(server.seen().registrations) != 2 {
					t.Errorf("with a nonce: %+v", s)
				}
				p.end()
			})
		})
	}
}

// TestExpiredCertificate: the local clock may be wrong, so the server decides.
func TestExpiredCertificate(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		p := f.start(f.config())
		settle(time.Second)
		p.end()
		settle(48 * time.Hour)
		before := len(server.seen().reports)
		p = f.start(f.config())
		settle(time.Minute)
		if s := f.status(); s.State != agent.StateExpired || s.Reason == "" || len(server.seen().reports) != before {
			t.Errorf("with an expired certificate: %+v", s)
		}
		p.end()
		f.put("nonce.jwt", nonce(cluster, shard))
		p = f.start(f.config())
		settle(time.Second)
		if s := f.status(); s.State != agent.StateConnected {
			t.Errorf("with a new nonce: %+v", s)
		}
		p.end()
	})
}

// TestCAsOfAnswers: while a CA is being replaced, a response trusts more CAs than userdata. They
// are kept if a CA signed them that is trusted already.
func TestCAsOfAnswers(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		next := must(pki.NewCA(pki.CAConfig{Cluster: cluster, Key: must(pki.GenerateKey(rand.Reader))(t), Now: time.Now(),
			Random: rand.Reader}))(t)
		both := string(pki.NewBundle(f.ca.Certificate(), next.Certificate()).PEM())
		server.set(func() { server.chain = both })
		p := f.start(f.config())
		settle(time.Second)
		p.end()
		if f.file("ca.crt") != both {
			t.Errorf("ca.crt is %q", f.file("ca.crt"))
		}
		server.down()
		f.ca = next
		server.start()
		p = f.start(f.config())
		settle(time.Second)
		if s := f.status(); s.State != agent.StateConnecting {
			t.Errorf("the new CA's server does not know the old CA yet, but: %+v", s)
		}
		p.end()
	})
}

// TestForeignCAsOfAnswers: a genuine certificate that is passed on with other CAs is stored
// without these, at the registration and at a renewal.
func TestForeignCAsOfAnswers(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server, foreign, ca := f.up("10.0.0.1"), otherCA(t), f.file("ca.crt")
		chain := pki.NewBundle(f.ca.Certificate(), foreign.Certificate()).PEM()
		spoil := func(i *nstancev1.Identity) { i.CaChain, i.CaChainSignature = string(chain), foreign.SignBundle(chain) }
		server.set(func() {
			server.register = func(r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				granted, err := server.grant(r)
				spoil(granted.GetIdentity())
				return granted, err
			}
			server.renew = func(r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
				granted, err := server.renewFor(f.ca, instanceID, r)
				spoil(granted)
				return granted, err
			}
		})
		p := f.start(f.rare())
		settle(time.Second)
		first := f.file("identity.crt")
		if f.status().State != agent.StateConnected || f.file("ca.crt") != ca {
			t.Errorf("after the registration: %+v, ca.crt is %q", f.status(), f.file("ca.crt"))
		}
		settle(17 * time.Hour)
		p.end()
		if f.file("identity.crt") == first || f.file("ca.crt") != ca {
			t.Errorf("after a renewal ca.crt is %q", f.file("ca.crt"))
		}
	})
}
