package agent_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// renewal is a renewal request at a server.
type renewal struct {
	at     time.Time
	key    string // public, PEM
	serial string // of the client certificate
}

// RenewCertificate implements AgentServiceServer.
func (s *server) RenewCertificate(
	ctx context.Context, r *nstancev1.AgentServiceRenewCertificateRequest,
) (*nstancev1.AgentServiceRenewCertificateResponse, error) {
	caller, _ := rpc.CallerFrom(ctx)
	s.mu.Lock()
	s.renewals = append(s.renewals, renewal{time.Now(), r.GetPublicKey(), caller.Serial})
	renew, chain := s.renew, s.chain
	s.mu.Unlock()
	if renew == nil {
		renew = func(r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			return s.renewFor(s.w.ca, instanceID, r)
		}
	}
	identity, err := renew(r)
	if err == nil && chain != "" {
		identity.CaChain, identity.CaChainSignature = chain, s.w.ca.SignBundle([]byte(chain))
	}
	return &nstancev1.AgentServiceRenewCertificateResponse{Identity: identity}, err
}

func (s *server) renewFor(ca *pki.CA, id string, r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
	granted, err := s.grantTo(ca, id, &nstancev1.RegisterAgentRequest{PublicKey: r.GetPublicKey()})
	return granted.GetIdentity(), err
}

func (s *server) renewed() []renewal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]renewal(nil), s.renewals...)
}

// rare makes an agent report rarely, for tests of many hours.
func (f *fixture) rare() agent.Config {
	c := f.config()
	c.ReportInterval = time.Hour
	return c
}

// pair returns the pair in the identity directory, and checks that it matches.
func (f *fixture) pair() *pki.Keypair {
	f.t.Helper()
	return must(pki.ParseKeypair([]byte(f.file("identity.crt")), []byte(f.file("identity.key"))))(f.t)
}

// TestRenewal: at two thirds of each lifetime, with a new key each time, on the original
// streams, long after the first certificate has expired.
func TestRenewal(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.sides = true })
		began := time.Now()
		c := f.rare()
		p := f.start(c)
		settle(100 * time.Hour) // the fixture's certificates are valid for 24 h
		got := server.renewed()
		if len(got) != 6 {
			t.Fatalf("%d renewals in 100 hours, want one every 15.4: %v", len(got), got)
		}
		seen := map[string]bool{}
		for n, r := range got {
			due := began
			if n > 0 {
				due = got[n-1].at
			}
			if after := r.at.Sub(due); after < 15*time.Hour || after > 16*time.Hour {
				t.Errorf("renewal %d came %s after the one before", n, after)
			}
			if seen[r.key] || seen[r.serial] {
				t.Errorf("renewal %d used a key or a certificate again", n)
			}
			seen[r.key], seen[r.serial] = true, true
		}
		if s := server.seen(); s.streams != 1 || s.sideOpen != 2 || s.sideCalls != 2 || len(s.registrations) != 1 {
			t.Errorf("%d health streams, %d others of %d opened, %d registrations, want the first ones", s.streams, s.sideOpen, s.sideCalls,
				len(s.registrations))
		}
		if n := len(server.seen().reports); n < 100 {
			t.Errorf("%d reports in 100 hours", n)
		}
		cert := f.pair().Certificate()
		if s := f.status(); s.CertificateSerial != pki.SerialHex(cert) || s.State != agent.StateConnected || f.file("identity.key.next") != "" {
			t.Errorf("status %+v, next key %q", s, f.file("identity.key.next"))
		}

		// A broken stream reconnects with the new certificate.
		server.breakSides()
		settle(20 * time.Second)
		if s := server.seen(); s.sideOpen != 2 || s.streams != 1 {
			t.Errorf("after a break %d other streams are open, and %d health streams were", s.sideOpen, s.streams)
		}
		server.down()
		server.start()
		settle(20 * time.Second)
		if s := f.status(); s.State != agent.StateConnected {
			t.Errorf("after the server's restart: %+v", s)
		}
		p.end()
	})
}

// TestRenewalsSpread: machines created at the same moment renew at different times.
func TestRenewalsSpread(t *testing.T) {
	var at []time.Duration
	for _, share := range []float64{0, 0.5, 0.999} {
		withFixture(t, func(f *fixture) {
			server, c, began := f.up("10.0.0.1"), f.rare(), time.Now()
			c.Random = func() float64 { return share }
			p := f.start(c)
			settle(17 * time.Hour)
			p.end()
			if got := server.renewed(); len(got) == 1 {
				at = append(at, got[0].at.Sub(began))
			}
		})
	}
	if len(at) != 3 || at[0] != 16*time.Hour || at[1] > at[0]-30*time.Minute || at[2] > at[1]-30*time.Minute || at[2] < 14*time.Hour {
		t.Errorf("renewed after %v of 24 h", at)
	}
}

// otherCA returns another CA of the same cluster name.
func otherCA(t *testing.T) *pki.CA {
	return must(pki.NewCA(pki.CAConfig{Cluster: cluster, Key: must(pki.GenerateKey(rand.Reader))(t), Now: time.Now(),
		Random: rand.Reader}))(t)
}

// TestRenewalIsTriedAgain: with growing waits and the same key, without losing a certificate.
func TestRenewalIsTriedAgain(t *testing.T) {
	type answer = func(*server, *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error)
	for name, bad := range map[string]answer{
		"down": func(*server, *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			return nil, rpc.Unavailable.Errorf("the store is away")
		},
		"not served": func(*server, *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			return nil, rpc.Unimplemented.Errorf("an older server")
		},
		"too often": func(*server, *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			return nil, rpc.Exhausted.Errorf("asked too often")
		},
		"nothing": func(*server, *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			return nil, nil
		},
		"garbage": func(*server, *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			return &nstancev1.Identity{Certificate: "x", CaChain: "y"}, nil
		},
		"other machine": func(s *server, r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			return s.renewFor(s.w.ca, "knd01h455vb4pex5vsknk084sn02r", r)
		},
		"other key": func(s *server, _ *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			key, err := pki.GenerateKey(rand.Reader)
			if err != nil {
				return nil, err
			}
			granted, err := s.grantKey(s.w.ca, instanceID, pki.PublicKey(key))
			return granted.GetIdentity(), err
		},
		"other tenant": func(s *server, r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			key, err := pki.ParsePublicKey([]byte(r.GetPublicKey()))
			if err != nil {
				return nil, err
			}
			cert, err := s.w.ca.IssueAgent(pki.ClientRequest{Tenant: "prod", ID: instanceID, PublicKey: key, Now: time.Now(), TTL: time.Hour},
				rand.Reader)
			if err != nil {
				return nil, err
			}
			return &nstancev1.Identity{Certificate: string(pki.EncodeCertificate(cert)),
				CaChain: string(pki.NewBundle(s.w.ca.Certificate()).PEM())}, nil
		},
		"chain of another CA": func(s *server, r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			identity, err := s.renewFor(s.w.ca, instanceID, r)
			identity.CaChain = string(pki.NewBundle(otherCA(s.w.t).Certificate()).PEM())
			return identity, err
		},
		"another CA's, with its chain": func(s *server, r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			return s.renewFor(otherCA(s.w.t), instanceID, r)
		},
		"another CA's, with both": func(s *server, r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
			ca := otherCA(s.w.t)
			identity, err := s.renewFor(ca, instanceID, r)
			identity.CaChain = string(pki.NewBundle(s.w.ca.Certificate(), ca.Certificate()).PEM())
			return identity, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				server := f.up("10.0.0.1")
				server.set(func() {
					server.renew = func(r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
						return bad(server, r)
					}
				})
				p := f.start(f.rare())
				settle(time.Second)
				ca, cert, key := f.file("ca.crt"), f.file("identity.crt"), f.file("identity.key")
				settle(21 * time.Hour)
				got := server.renewed()
				if n := len(got); n < 5 || n > 200 { // several requests per attempt while the server is away
					t.Errorf("%d attempts in five hours", n)
				}
				for _, r := range got {
					if r.key != got[0].key {
						t.Error("an attempt came with another key than the first")
					}
				}
				if f.file("ca.crt") != ca || f.file("identity.crt") != cert || f.file("identity.key") != key {
					t.Error("a bad answer was taken")
				}
				server.set(func() { server.renew = nil })
				settle(time.Hour + time.Minute)
				if f.file("identity.crt") == cert || server.seen().streams != 1 {
					t.Errorf("not renewed when it could be; %d health streams", server.seen().streams)
				}
				f.pair()
				p.end()
			})
		})
	}
}

// TestCrashInARenewal starts the agent after a crash at each step of a renewal.
func TestCrashInARenewal(t *testing.T) {
	files := func(f *fixture) map[string]string {
		return map[string]string{"identity.key": f.file("identity.key"), "identity.crt": f.file("identity.crt"), "ca.crt": f.file("ca.crt")}
	}
	for name, left := range map[string]func(was, is map[string]string) map[string]string{
		"before the request": func(_, is map[string]string) map[string]string {
			return map[string]string{"identity.key.next": is["identity.key"]}
		},
		"after the CAs": func(_, is map[string]string) map[string]string {
			return map[string]string{"identity.key.next": is["identity.key"], "ca.crt": is["ca.crt"]}
		},
		"after the certificate": func(_, is map[string]string) map[string]string {
			return map[string]string{"identity.key.next": is["identity.key"], "ca.crt": is["ca.crt"], "identity.crt": is["identity.crt"]}
		},
		"after the key": func(_, is map[string]string) map[string]string { return is },
		"a torn file": func(map[string]string, map[string]string) map[string]string {
			return map[string]string{"identity.key.next": "-----BEGIN"}
		},
		"an empty file": func(map[string]string, map[string]string) map[string]string {
			return map[string]string{"identity.key.next": ""}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				server := f.up("10.0.0.1")
				other := must(pki.NewCA(pki.CAConfig{Cluster: cluster, Key: must(pki.GenerateKey(rand.Reader))(t), Now: time.Now(),
					Random: rand.Reader}))(t)
				p := f.start(f.rare())
				settle(time.Second)
				was := files(f)
				server.set(func() { server.chain = string(pki.NewBundle(other.Certificate(), f.ca.Certificate()).PEM()) })
				settle(17 * time.Hour)
				p.end()
				is := files(f)
				if is["identity.crt"] == was["identity.crt"] || is["ca.crt"] == was["ca.crt"] {
					t.Fatal("it was not renewed")
				}
				for name, text := range was {
					f.put(name, text)
				}
				for name, text := range left(was, is) {
					f.put(name, text)
				}
				before := len(server.renewed())
				p = f.start(f.rare())
				settle(2 * time.Minute)
				if s := f.status(); s.State != agent.StateConnected {
					t.Errorf("after the crash: %s %s", s.State, s.Reason)
				}
				settle(20 * time.Hour)
				f.pair()
				if n := len(server.renewed()) - before; n < 1 || n > 2 || len(server.seen().registrations) != 1 {
					t.Errorf("%d renewals and %d registrations in all", n, len(server.seen().registrations))
				}
				if f.file("identity.key.next") != "" {
					t.Error("a next key is left")
				}
				p.end()
			})
		})
	}
}
