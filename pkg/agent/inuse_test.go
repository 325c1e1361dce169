package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestSubmittedKeyOfAnother: a key that belongs to another instance is set aside and replaced;
// the others are kept.
func TestSubmittedKeyOfAnother(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.asks(key("web", ed), key("peer", p256))
		p := f.start(f.config())
		settle(time.Minute)
		p.end()
		web, peer := f.file("keys/web.key"), f.file("keys/peer.key")
		first := server.keys()[0]
		server.set(func() {
			server.submit = func(keys map[string]string) error {
				if keys["web"] == first["web"] {
					return keyInUse(`public_keys["web"]`)
				}
				return nil
			}
		})
		p = f.start(f.config())
		settle(time.Second)
		p.end()
		all := server.keys()
		last := all[len(all)-1]
		if len(all) != 3 || last["web"] == first["web"] || last["peer"] != first["peer"] {
			t.Errorf("handed in %v", all)
		}
		if now := f.file("keys/web.key"); now == "" || now == web || f.file("keys/peer.key") != peer || f.file("keys/web.pub") != last["web"] {
			t.Errorf("web.key is %q", now)
		}
		aside := f.found("keys/web.key.in-use-*")
		if string(must(os.ReadFile(aside))(t)) != web || must(os.Stat(aside))(t).Mode().Perm() != 0o640 {
			t.Errorf("%s is not the key as it was", aside)
		}
	})
}

// TestEverySubmittedKeyIsRefused: a new key is not replaced again, but submitted until the
// server accepts it.
func TestEverySubmittedKeyIsRefused(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.asks(key("web", ed))
		refuse := true
		server.set(func() {
			server.submit = func(map[string]string) error {
				if refuse {
					return keyInUse(`public_keys["web"]`)
				}
				return nil
			}
		})
		p := f.start(f.config())
		settle(time.Hour)
		f.found("keys/web.key.in-use-*") // exactly one
		n := len(server.keys())
		server.set(func() { refuse = false })
		settle(time.Minute)
		all := server.keys()
		if len(all) != n+1 || n < 3 || n > 2000 || all[1]["web"] != all[n]["web"] {
			t.Errorf("handed in %d times, then %d", n, len(all)-n)
		}
		p.end()
	})
}

// TestRenewalKeyOfAnother: the disk came with another instance's next key. It is set aside
// once the server refuses it, and the renewal continues with a new one.
func TestRenewalKeyOfAnother(t *testing.T) {
	withFixture(t, func(f *fixture) {
		copied := f.putKey("identity.key.next")
		server := f.up("10.0.0.1")
		var taken string
		server.set(func() {
			server.renew = func(r *nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
				if taken == "" || r.GetPublicKey() == taken {
					taken = r.GetPublicKey()
					return nil, keyInUse("public_key")
				}
				return server.renewFor(f.ca, instanceID, r)
			}
		})
		p := f.start(f.rare())
		settle(20 * time.Hour)
		if all := server.renewed(); len(all) != 2 || all[0].key == all[1].key {
			t.Errorf("asked %d times: %v", len(all), all)
		}
		if s := f.status(); s.State != agent.StateConnected {
			t.Errorf("status %+v", s)
		}
		if aside := f.found("identity.key.next.in-use-*"); string(must(os.ReadFile(aside))(t)) != copied {
			t.Errorf("%s is not the key as it was", aside)
		}
		if strings.Contains(f.file("identity.key"), copied) {
			t.Error("the key of another instance is used")
		}
		f.pair()
		p.end()
	})
}

// TestEveryRenewalKeyIsRefused: only one key is set aside, not one per attempt, and the
// current certificate stays in use.
func TestEveryRenewalKeyIsRefused(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() {
			server.renew = func(*nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) {
				return nil, keyInUse("public_key")
			}
		})
		p := f.start(f.rare())
		settle(20 * time.Hour)
		all := server.renewed()
		if len(all) < 3 || all[0].key == all[1].key || all[1].key != all[len(all)-1].key {
			t.Errorf("asked %d times: %v", len(all), all)
		}
		if aside := must(filepath.Glob(filepath.Join(f.dir, "identity.key.next.in-use-*")))(t); len(aside) != 1 {
			t.Errorf("set aside: %v", aside)
		}
		if s := f.status(); s.State != agent.StateConnected {
			t.Errorf("status %+v", s)
		}
		p.end()
	})
}
