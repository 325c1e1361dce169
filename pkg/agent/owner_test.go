package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const otherID = "knd01h455vb4pex5vsknk084sn03r"

// registered is a world in which an agent has registered, made a key and received a file.
func registered(w *world, server *server) {
	server.asks(key("web", ed))
	files := server.pusher()
	p := w.start(w.config())
	settle(time.Second)
	files.events <- fileEvent("app.conf", "of the first")
	files.events <- commitEvent("h1", "app.conf")
	settle(time.Second)
	p.end()
	if err := os.WriteFile(filepath.Join(w.dir, "recv", "notes.txt"), []byte("a person's"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if w.file("recv/app.conf") == "" || w.file("keys/web.key") == "" || w.file("identity.crt") == "" {
		w.t.Fatal("the first machine is not ready")
	}
}

// TestImageOfARegisteredMachine: a machine whose disk is a copy of a registered one's has
// an id and a nonce of its own. It uses nothing of what is the other's, and that is kept.
func TestImageOfARegisteredMachine(t *testing.T) {
	inWorld(t, func(w *world) {
		server := w.up("10.0.0.1")
		registered(w, server)
		before := map[string]string{}
		for _, name := range []string{
			"identity.key", "identity.crt", "server.id", "keys/web.key", "keys/web.pub", "recv/app.conf", "recv/config.hash",
		} {
			before[name] = w.file(name)
		}
		server.set(func() {
			server.register = func(r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				return server.grantTo(w.ca, otherID, r)
			}
		})
		w.put("nonce.jwt", nonceFor(otherID))
		c := w.config()
		c.InstanceID = otherID
		for range 2 { // the second start finds its own
			w.connects(c)
		}
		seen := server.seen().registrations
		if len(seen) != 2 || seen[0].GetPublicKey() == seen[1].GetPublicKey() {
			t.Errorf("%d registrations: %v", len(seen), seen)
		}
		if keys := server.keys(); len(keys) < 2 || keys[0]["web"] == keys[len(keys)-1]["web"] {
			t.Errorf("public keys handed in: %v", keys)
		}
		for _, name := range []string{"identity.key", "identity.crt", "keys/web.key", "keys/web.pub"} {
			if now := w.file(name); now == "" || now == before[name] {
				t.Errorf("%s is %q", name, now)
			}
		}
		for _, name := range []string{"recv/app.conf", "recv/config.hash"} {
			if now := w.file(name); now != "" {
				t.Errorf("%s of the other instance is still there", name)
			}
		}
		for name, at := range map[string]string{
			"identity.key": "of-*/identity.key", "identity.crt": "of-*/identity.crt", "server.id": "of-*/server.id",
			"keys/web.key": "keys/of-*/web.key", "keys/web.pub": "keys/of-*/web.pub",
			"recv/app.conf": "recv/of-*/app.conf", "recv/config.hash": "recv/of-*/config.hash",
		} {
			path := w.found(at)
			if !strings.Contains(path, "of-"+instanceID) || string(must(os.ReadFile(path))(t)) != before[name] {
				t.Errorf("%s is kept as %s, and is another one", name, path)
			}
			if dir := must(os.Stat(filepath.Dir(path)))(t); dir.Mode().Perm() != 0o700 {
				t.Errorf("%s has mode %s", filepath.Dir(path), dir.Mode())
			}
		}
		if mode := must(os.Stat(w.found("keys/of-*/web.key")))(t).Mode().Perm(); mode != 0o640 {
			t.Errorf("the key that was set aside has mode %s", mode)
		}
		if w.file("recv/notes.txt") != "a person's" {
			t.Error("a person's own file is gone")
		}
	})
}

// TestKeysOfAnotherInstance: the identity is on a disk of its own, and the rest came with
// the image.
func TestKeysOfAnotherInstance(t *testing.T) {
	inWorld(t, func(w *world) {
		server := w.up("10.0.0.1")
		server.asks(key("web", ed))
		for dir, name := range map[string]string{"keys": "web.key", "recv": "notes.txt"} {
			if err := os.Mkdir(filepath.Join(w.dir, dir), 0o750); err != nil {
				t.Fatal(err)
			}
			w.put(filepath.Join(dir, name), "of another")
			w.put(filepath.Join(dir, ".instance"), otherID+"\n")
		}
		p := w.start(w.config())
		settle(time.Minute)
		p.end()
		if text := string(must(os.ReadFile(w.found("keys/of-" + otherID + "-*/web.key")))(t)); text != "of another" {
			t.Errorf("the key that was set aside is %q", text)
		}
		if strings.Contains(w.file("keys/web.key"), "of another") || w.file("recv/notes.txt") == "" {
			t.Error("the key is used, or a person's file is gone")
		}
		if w.file("keys/.instance") != instanceID+"\n" || w.file("recv/.instance") != instanceID+"\n" {
			t.Errorf("the records say %q and %q", w.file("keys/.instance"), w.file("recv/.instance"))
		}
	})
}

// TestMistypedID: an id alone sets nothing aside: it may be mistyped.
func TestMistypedID(t *testing.T) {
	inWorld(t, func(w *world) {
		server := w.up("10.0.0.1")
		registered(w, server)
		identity := w.file("identity.key")
		c := w.config()
		c.InstanceID = otherID
		for _, nonce := range []string{"", nonceFor(instanceID)} {
			w.put("nonce.jwt", nonce)
			p := w.start(c)
			settle(time.Minute)
			if s := w.status(); s.State != agent.StateRejected || !strings.Contains(s.Reason, instanceID) {
				t.Errorf("status %+v", s)
			}
			p.end()
			if len(server.seen().registrations) != 1 || w.file("nonce.jwt") != nonce {
				t.Error("another instance's nonce was spent")
			}
		}
		p := w.start(w.config())
		settle(time.Minute)
		if s := w.status(); s.State != agent.StateConnected || w.file("identity.key") != identity || w.file("keys/web.key") == "" {
			t.Errorf("with the right id again: %+v", s)
		}
		p.end()
	})
}

// TestSpentNonceAgain: a spent nonce is put there once more, and the clock is past the
// certificate's end. The server judges the certificate, as it does without a nonce.
func TestSpentNonceAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		server := w.up("10.0.0.1")
		p := w.start(w.config())
		settle(time.Second)
		p.end()
		server.set(func() { server.register = refusing(rpc.Denied.Errorf("the nonce has expired")) })
		w.put("nonce.jwt", nonce(cluster, shard))
		c := w.config()
		ahead := 48 * time.Hour
		c.Now = func() time.Time { return time.Now().Add(ahead) }
		w.connects(c)
		if w.file("nonce.jwt") != "" {
			t.Error("a nonce of no use is still there")
		}
	})
}

// TestAnotherNonce: an agent that was rejected takes a new nonce without a restart, once
// that is whole and its own.
func TestAnotherNonce(t *testing.T) {
	inWorld(t, func(w *world) {
		server := w.up("10.0.0.1")
		server.set(func() { server.register = refusing(rpc.Denied.Errorf("the nonce has expired")) })
		p := w.start(w.config())
		settle(time.Hour)
		for _, text := range []string{"", "half of", nonceFor(otherID)} {
			w.put("nonce.jwt", text)
			settle(time.Minute)
			if s := w.status(); s.State != agent.StateRejected || len(server.seen().registrations) != 1 {
				t.Errorf("with %q: %+v", text, s)
			}
		}
		server.set(func() { server.register = server.grant })
		w.put("nonce.jwt", nonceFor(instanceID)+"\n")
		settle(time.Minute)
		if s := w.status(); s.State != agent.StateConnected {
			t.Errorf("with a new nonce: %+v", s)
		}
		p.end()
	})
}
