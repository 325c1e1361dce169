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
)

// TestUnusableDirectory: what another start may find changed ends Run at once,
// with an error that names the file.
func TestUnusableDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world)
		want  []string
	}{
		"no CA":              {func(w *world) { os.Remove(filepath.Join(w.dir, "ca.crt")) }, []string{"ca.crt is missing", "userdata"}},
		"CA is garbage":      {func(w *world) { w.put("ca.crt", "hello") }, []string{"ca.crt"}},
		"CA is huge":         {func(w *world) { w.put("ca.crt", strings.Repeat("x", 2<<20)) }, []string{"ca.crt", "longer than"}},
		"no nonce":           {func(w *world) { os.Remove(filepath.Join(w.dir, "nonce.jwt")) }, []string{"nonce.jwt is missing", "userdata"}},
		"empty nonce":        {func(w *world) { w.put("nonce.jwt", " \n") }, []string{"nonce.jwt is missing"}},
		"nonce is garbage":   {func(w *world) { w.put("nonce.jwt", "hello") }, []string{"nonce.jwt", "not a JWT"}},
		"nonce of no shard":  {func(w *world) { w.put("nonce.jwt", nonce(cluster, "")) }, []string{"nonce.jwt", "shard"}},
		"nonce of a bad one": {func(w *world) { w.put("nonce.jwt", nonce("Ex/ample", shard)) }, []string{"nonce.jwt", "cluster", `"Ex/ample"`}},
		"key is garbage":     {func(w *world) { w.put("identity.key", "hello") }, []string{"identity.key"}},
		"key is a folder": {func(w *world) { os.Mkdir(filepath.Join(w.dir, "identity.key"), 0o700) },
			[]string{"private key", "is a directory"}},
		"no directory": {func(w *world) { os.RemoveAll(w.dir) }, []string{"ca.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				server := w.up("10.0.0.1")
				c.spoil(w)
				err := agent.Run(w.t.Context(), w.config())
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

// TestUnusableCertificate: with a nonce at hand another one is fetched; without
// one the agent stays up and does nothing.
func TestUnusableCertificate(t *testing.T) {
	foreign := func(w *world) {
		key := must(pki.GenerateKey(rand.Reader))(w.t)
		cert := must(w.ca.IssueAgent(pki.ClientRequest{
			Tenant: "default", ID: instanceID, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: time.Hour,
		}, rand.Reader))(w.t)
		w.put("identity.crt", string(pki.EncodeCertificate(cert)))
	}
	for name, spoil := range map[string]func(*world){
		"garbage":        func(w *world) { w.put("identity.crt", "hello") },
		"of another key": foreign,
		"without a key":  func(w *world) { os.Remove(filepath.Join(w.dir, "identity.key")) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				server := w.up("10.0.0.1")
				p := w.start(w.config())
				settle(time.Second)
				p.end()
				spoil(w)
				p = w.start(w.config())
				settle(time.Hour)
				if s := w.status(); s.State != agent.StateRejected || !strings.Contains(s.Reason, "nonce.jwt") {
					t.Errorf("without a nonce: %+v", s)
				}
				p.end()
				w.put("nonce.jwt", nonce(cluster, shard))
				p = w.start(w.config())
				settle(time.Second)
				if s := w.status(); s.State != agent.StateConnected || len(server.seen().registrations) != 2 {
					t.Errorf("with a nonce: %+v", s)
				}
				p.end()
			})
		})
	}
}

// TestExpiredCertificate: the clock may be what is wrong, so the server judges.
func TestExpiredCertificate(t *testing.T) {
	inWorld(t, func(w *world) {
		server := w.up("10.0.0.1")
		p := w.start(w.config())
		settle(time.Second)
		p.end()
		settle(48 * time.Hour)
		before := len(server.seen().reports)
		p = w.start(w.config())
		settle(time.Minute)
		if s := w.status(); s.State != agent.StateExpired || s.Reason == "" || len(server.seen().reports) != before {
			t.Errorf("with an expired certificate: %+v", s)
		}
		p.end()
		w.put("nonce.jwt", nonce(cluster, shard))
		p = w.start(w.config())
		settle(time.Second)
		if s := w.status(); s.State != agent.StateConnected {
			t.Errorf("with a new nonce: %+v", s)
		}
		p.end()
	})
}

// TestCAsOfTheAnswerAreKept: while a CA is being replaced the answer trusts more
// than userdata did.
func TestCAsOfTheAnswerAreKept(t *testing.T) {
	inWorld(t, func(w *world) {
		server := w.up("10.0.0.1")
		next := must(pki.NewCA(pki.CAConfig{Cluster: cluster, Key: must(pki.GenerateKey(rand.Reader))(t), Now: time.Now(),
			Random: rand.Reader}))(t)
		both := string(pki.NewBundle(w.ca.Certificate(), next.Certificate()).PEM())
		server.set(func() { server.chain = both })
		p := w.start(w.config())
		settle(time.Second)
		p.end()
		if w.file("ca.crt") != both {
			t.Errorf("ca.crt is %q", w.file("ca.crt"))
		}
		server.down()
		w.ca = next
		server.start()
		p = w.start(w.config())
		settle(time.Second)
		if s := w.status(); s.State != agent.StateConnecting {
			t.Errorf("the new CA's server does not know the old CA yet, but: %+v", s)
		}
		p.end()
	})
}
