package agent_test

import (
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

type answer = func(*nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error)

func refusing(err error) answer {
	return func(*nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) { return nil, err }
}

func TestRefusedNonceIsFinal(t *testing.T) {
	for _, kind := range []rpc.Kind{rpc.Denied, rpc.Unauthenticated, rpc.Invalid, rpc.Precondition, rpc.Exists} {
		t.Run(kind.Error(), func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				server := f.up("10.0.0.1")
				server.set(func() { server.register = refusing(kind.Errorf("the nonce is spent")) })
				p := f.start(f.config())
				settle(24 * time.Hour)
				if n := len(server.seen().registrations); n != 1 {
					t.Errorf("asked %d times in a day, want once", n)
				}
				if s := f.status(); s.State != agent.StateRejected || !strings.Contains(s.Reason, "the nonce is spent") {
					t.Errorf("status %+v", s)
				}
				if f.file("identity.crt") != "" || f.file("nonce.jwt") == "" {
					t.Error("a refusal changed the files")
				}
				p.end()
			})
		})
	}
}

func TestTransientTroubleIsOutlived(t *testing.T) {
	for _, err := range []error{
		rpc.Unavailable.Errorf("storage"), rpc.Exhausted.Errorf("slow down"), rpc.Conflict.Errorf("again"),
		rpc.Unimplemented.Errorf("old server"), errors.New("a bug"),
	} {
		t.Run(err.Error(), func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				server := f.up("10.0.0.1")
				server.set(func() { server.register = refusing(err) })
				p := f.start(f.config())
				settle(10 * time.Minute)
				if n := len(server.seen().registrations); n < 50 || n > 200 {
					t.Errorf("asked %d times in ten minutes", n)
				}
				if s := f.status(); s.State != agent.StateRegistering || s.Reason == "" {
					t.Errorf("status %+v", s)
				}
				server.set(func() { server.register = server.grant })
				settle(10 * time.Second)
				if f.status().State != agent.StateConnected {
					t.Errorf("status %+v", f.status())
				}
				p.end()
			})
		})
	}
}

// TestRefusedClaimsAreNotFinal: the provider may still confirm the agent's claims. If another
// field is invalid for good, registration is not retried.
func TestRefusedClaimsAreNotFinal(t *testing.T) {
	refusal := func(fields ...string) error {
		err := &rpc.ViolationsError{Message: "invalid request"}
		for _, field := range fields {
			err.Violations = append(err.Violations, rpc.Violation{Field: field, Description: "not of this instance"})
		}
		return err
	}
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.register = refusing(refusal("hostname", "ips")) })
		p := f.start(f.config())
		settle(10 * time.Minute)
		if s := f.status(); s.State != agent.StateRegistering || !strings.Contains(s.Reason, "not of this instance") {
			t.Errorf("status %+v", s)
		}
		server.set(func() { server.register = server.grant })
		settle(10 * time.Second)
		if s := f.status(); s.State != agent.StateConnected {
			t.Errorf("status %+v", s)
		}
		p.end()
	})
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.register = refusing(refusal("hostname", "public_key")) })
		p := f.start(f.config())
		settle(10 * time.Minute)
		if n := len(server.seen().registrations); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
		p.end()
	})
}

// keyInUse refuses a public key of another instance, like a server.
func keyInUse(field string) error {
	return &rpc.ViolationsError{Message: "invalid request", Kind: rpc.KeyInUse,
		Violations: []rpc.Violation{{Field: field, Description: "it is the key of another instance"}}}
}

// TestKeyOfAnotherInstance: the disk came with a key without an owner record. It is set aside
// once the server refuses it, and the same nonce is spent with a new one.
func TestKeyOfAnotherInstance(t *testing.T) {
	withFixture(t, func(f *fixture) {
		copied := f.putKey("identity.key")
		server := f.up("10.0.0.1")
		var taken string
		server.set(func() {
			server.register = func(r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				if taken == "" || r.GetPublicKey() == taken {
					taken = r.GetPublicKey()
					return nil, keyInUse("public_key")
				}
				return server.grant(r)
			}
		})
		for range 2 { // the second start uses the files of the first
			f.connects(f.config())
		}
		seen := server.seen().registrations
		if len(seen) != 2 || seen[0].GetPublicKey() == seen[1].GetPublicKey() || seen[0].GetNonce() != seen[1].GetNonce() {
			t.Errorf("%d registrations: %v", len(seen), seen)
		}
		if now := f.file("identity.key"); now == "" || now == copied {
			t.Errorf("identity.key is %q", now)
		}
		aside := f.found("identity.key.in-use-*")
		if string(must(os.ReadFile(aside))(t)) != copied || must(os.Stat(aside))(t).Mode().Perm() != 0o600 {
			t.Errorf("%s is not the key as it was", aside)
		}
	})
}

// TestEveryKeyIsRefused: a server that also refuses a new key is not retried for ever.
func TestEveryKeyIsRefused(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.register = refusing(keyInUse("public_key")) })
		p := f.start(f.config())
		settle(24 * time.Hour)
		if n := len(server.seen().registrations); n != 2 {
			t.Errorf("asked %d times in a day, want twice", n)
		}
		if s := f.status(); s.State != agent.StateRejected || !strings.Contains(s.Reason, "another instance") {
			t.Errorf("status %+v", s)
		}
		p.end()
	})
}

// TestNotFoundIsOutlived: the server may not have seen the record yet; once the nonce has
// expired, NOT_FOUND is final.
func TestNotFoundIsOutlived(t *testing.T) {
	const life = 10 * time.Minute
	for name, appears := range map[string]time.Duration{"in time": life / 2, "never": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				server := f.up("10.0.0.1")
				server.set(func() { server.register = refusing(rpc.NotFound.Errorf("there is no instance")) })
				f.put("nonce.jwt", nonceUntil(cluster, shard, time.Now().Add(life)))
				p := f.start(f.config())
				settle(min(appears, life))
				if s := f.status(); s.State != agent.StateRegistering || !strings.Contains(s.Reason, "there is no instance") {
					t.Errorf("within the nonce's life: %+v", s)
				}
				if appears < life {
					server.set(func() { server.register = server.grant })
					settle(15 * time.Second)
					if s := f.status(); s.State != agent.StateConnected {
						t.Errorf("after the record appeared: %+v", s)
					}
				} else {
					settle(2 * time.Minute)
					asked := len(server.seen().registrations)
					settle(time.Hour)
					if s := f.status(); s.State != agent.StateRejected || len(server.seen().registrations) != asked {
						t.Errorf("after the nonce's life: %+v, asked %d times more", s, len(server.seen().registrations)-asked)
					}
				}
				p.end()
			})
		})
	}
}

func TestNoServerYet(t *testing.T) {
	withFixture(t, func(f *fixture) {
		p := f.start(f.config())
		settle(20 * time.Minute)
		f.up("10.0.0.1")
		settle(15 * time.Second)
		if s := f.status(); s.State != agent.StateConnected {
			t.Errorf("status %+v", s)
		}
		p.end()
	})
}

func TestServerThatNeverAnswers(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		hang := make(chan struct{})
		server.set(func() {
			server.register = func(*nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				<-hang
				return nil, errors.New("too late")
			}
		})
		p := f.start(f.config())
		settle(2 * time.Minute)
		if n := len(server.seen().registrations); n < 3 || n > 4 {
			t.Errorf("asked %d times in two minutes, want every 30 s or so", n)
		}
		if took := p.end(); took != 0 {
			t.Errorf("stopping took %s", took)
		}
		close(hang)
	})
}

// TestLostReply: the server bound the nonce to the key, and the response was lost. Neither a
// retry nor a restart may change the key.
func TestLostReply(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.register = refusing(rpc.Unavailable.Errorf("lost")) })
		p := f.start(f.config())
		settle(10 * time.Second)
		p.end()
		server.set(func() { server.register = server.grant })
		p = f.start(f.config())
		settle(time.Second)
		asked := server.seen().registrations
		for _, r := range asked {
			if r.GetPublicKey() != asked[0].GetPublicKey() || r.GetNonce() != asked[0].GetNonce() {
				t.Fatal("the key or the nonce changed between attempts")
			}
		}
		if len(asked) < 3 || f.status().State != agent.StateConnected {
			t.Errorf("%d attempts, status %+v", len(asked), f.status())
		}
		p.end()
	})
}

// TestCrashBeforeTheNonceWasDeleted: the certificate is stored, and the nonce still exists.
func TestCrashBeforeTheNonceWasDeleted(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		p := f.start(f.config())
		settle(time.Second)
		p.end()
		f.put("nonce.jwt", nonce(cluster, shard))
		p = f.start(f.config())
		settle(time.Second)
		if n := len(server.seen().registrations); n != 1 || f.file("nonce.jwt") != "" || f.status().State != agent.StateConnected {
			t.Errorf("%d registrations, nonce %q, status %+v", n, f.file("nonce.jwt"), f.status())
		}
		p.end()
	})
}

// TestCrashBeforeTheCertificateWasStored: there are only a nonce and a key.
func TestCrashBeforeTheCertificateWasStored(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		text := must(pki.EncodePrivateKey(must(pki.GenerateKey(rand.Reader))(t)))(t)
		f.put("identity.key", string(text))
		p := f.start(f.config())
		settle(time.Second)
		if len(server.seen().registrations) != 1 || f.file("identity.key") != string(text) || f.status().State != agent.StateConnected {
			t.Errorf("status %+v", f.status())
		}
		p.end()
	})
}

func TestWrongCertificateIsNotStored(t *testing.T) {
	otherKey := must(pki.GenerateKey(rand.Reader))(t)
	for name, wrong := range map[string]func(*fixture, *server) answer{
		"another key": func(f *fixture, s *server) answer {
			return func(*nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				return s.grantKey(f.ca, instanceID, pki.PublicKey(otherKey))
			}
		},
		"another instance": func(f *fixture, s *server) answer {
			return func(r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				return s.grantTo(f.ca, "knd01h455vb4pex5vsknk084sn099", r)
			}
		},
		"a chain that does not verify it": func(_ *fixture, s *server) answer {
			other, err := pki.NewCA(pki.CAConfig{Cluster: cluster, Key: otherKey, Now: time.Now(), Random: rand.Reader})
			return func(r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				if err != nil {
					return nil, err
				}
				granted, err := s.grant(r)
				granted.Identity.CaChain = string(pki.NewBundle(other.Certificate()).PEM())
				return granted, err
			}
		},
		"another CA's, with its chain": func(_ *fixture, s *server) answer {
			other, err := pki.NewCA(pki.CAConfig{Cluster: cluster, Key: otherKey, Now: time.Now(), Random: rand.Reader})
			return func(r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				if err != nil {
					return nil, err
				}
				return s.grantTo(other, instanceID, r)
			}
		},
		"nothing": func(*fixture, *server) answer {
			return func(*nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				return &nstancev1.RegisterAgentResponse{}, nil
			}
		},
		"garbage": func(*fixture, *server) answer {
			return func(*nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				return &nstancev1.RegisterAgentResponse{Identity: &nstancev1.Identity{Certificate: "x", CaChain: "y"}}, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				server := f.up("10.0.0.1")
				server.set(func() { server.register = wrong(f, server) })
				ca := f.file("ca.crt")
				p := f.start(f.config())
				settle(time.Minute)
				if f.file("identity.crt") != "" || f.file("ca.crt") != ca || f.file("nonce.jwt") == "" || f.status().State != agent.StateRegistering {
					t.Errorf("certificate %q, status %+v", f.file("identity.crt"), f.status())
				}
				server.set(func() { server.register = server.grant })
				settle(10 * time.Second)
				if f.status().State != agent.StateConnected {
					t.Errorf("status %+v", f.status())
				}
				p.end()
			})
		})
	}
}

// TestImpostorNeverSeesTheNonce: a server of another shard, and an instance with a certificate
// from the same CA that listens at the server's address.
func TestImpostorNeverSeesTheNonce(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.down()
		server.id = "dev-2"
		server.start()
		p := f.start(f.config())
		settle(time.Minute)
		if n := len(server.seen().registrations); n != 0 {
			t.Errorf("the nonce was shown %d times", n)
		}
		if s := f.status(); s.State != agent.StateRegistering || !strings.Contains(s.Reason, "dev-2") {
			t.Errorf("status %+v", s)
		}
		p.end()
	})
}
