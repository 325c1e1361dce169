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

// registered returns a fixture in which an agent has registered, made a key and received a
// file.
func registered(f *fixture, server *server) {
	server.asks(key("web", ed))
	files := server.pusher()
	p := f.start(f.config())
	settle(time.Second)
	files.events <- fileEvent("app.conf", "of the first")
	files.events <- commitEvent("h1", "app.conf")
	settle(time.Second)
	p.end()
	if err := os.WriteFile(filepath.Join(f.dir, "recv", "notes.txt"), []byte("a user's"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if f.file("recv/app.conf") == "" || f.file("keys/web.key") == "" || f.file("identity.crt") == "" {
		f.t.Fatal("the first machine is not ready")
	}
}

// TestImageOfARegisteredMachine: a machine whose disk is a copy of a registered one's, with
// its own ID and nonce, uses none of the other's files, and keeps them aside.
func TestImageOfARegisteredMachine(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		registered(f, server)
		before := map[string]string{}
		for _, name := range []string{
			"identity.key", "identity.crt", "server.id", "keys/web.key", "keys/web.pub", "recv/app.conf", "recv/config.hash",
		} {
			before[name] = f.file(name)
		}
		server.set(func() {
			server.register = func(r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
				return server.grantTo(f.ca, otherID, r)
			}
		})
		f.put("nonce.jwt", nonceFor(otherID))
		c := f.config()
		c.InstanceID = otherID
		for range 2 { // the second start finds its own files
			f.connects(c)
		}
		seen := server.seen().registrations
		if len(seen) != 2 || seen[0].GetPublicKey() == seen[1].GetPublicKey() {
			t.Errorf("%d registrations: %v", len(seen), seen)
		}
		if keys := server.keys(); len(keys) < 2 || keys[0]["web"] == keys[len(keys)-1]["web"] {
			t.Errorf("public keys handed in: %v", keys)
		}
		for _, name := range []string{"identity.key", "identity.crt", "keys/web.key", "keys/web.pub"} {
			if now := f.file(name); now == "" || now == before[name] {
				t.Errorf("%s is %q", name, now)
			}
		}
		for _, name := range []string{"recv/app.conf", "recv/config.hash"} {
			if now := f.file(name); now != "" {
				t.Errorf("%s of the other instance is still there", name)
			}
		}
		for name, at := range map[string]string{
			"identity.key": "of-*/identity.key", "identity.crt": "of-*/identity.crt", "server.id": "of-*/server.id",
			"keys/web.key": "keys/of-*/web.key", "keys/web.pub": "keys/of-*/web.pub",
			"recv/app.conf": "recv/of-*/app.conf", "recv/config.hash": "recv/of-*/config.hash",
		} {
			path := f.found(at)
			if !strings.Contains(path, "of-"+instanceID) || string(must(os.ReadFile(path))(t)) != before[name] {
				t.Errorf("%s is kept as %s, and is another one", name, path)
			}
			if dir := must(os.Stat(filepath.Dir(path)))(t); dir.Mode().Perm() != 0o700 {
				t.Errorf("%s has mode %s", filepath.Dir(path), dir.Mode())
			}
		}
		if mode := must(os.Stat(f.found("keys/of-*/web.key")))(t).Mode().Perm(); mode != 0o640 {
			t.Errorf("the key that was set aside has mode %s", mode)
		}
		if f.file("recv/notes.txt") != "a user's" {
			t.Error("a user's own file is gone")
		}
	})
}

// TestKeysOfAnotherInstance: the identity is on a separate disk, and the other directories
// came with the image.
func TestKeysOfAnotherInstance(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.asks(key("web", ed))
		for dir, name := range map[string]string{"keys": "web.key", "recv": "notes.txt"} {
			if err := os.Mkdir(filepath.Join(f.dir, dir), 0o750); err != nil {
				t.Fatal(err)
			}
			f.put(filepath.Join(dir, name), "of another")
			f.put(filepath.Join(dir, ".instance"), otherID+"\n")
		}
		p := f.start(f.config())
		settle(time.Minute)
		p.end()
		if text := string(must(os.ReadFile(f.found("keys/of-" + otherID + "-*/web.key")))(t)); text != "of another" {
			t.Errorf("the key that was set aside is %q", text)
		}
		if strings.Contains(f.file("keys/web.key"), "of another") || f.file("recv/notes.txt") == "" {
			t.Error("the key is used, or a user's file is gone")
		}
		if f.file("keys/.instance") != instanceID+"\n" || f.file("recv/.instance") != instanceID+"\n" {
			t.Errorf("the records say %q and %q", f.file("keys/.instance"), f.file("recv/.instance"))
		}
	})
}

// TestMistypedID: an ID alone sets nothing aside, since it may be mistyped.
func TestMistypedID(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		registered(f, server)
		identity := f.file("identity.key")
		c := f.config()
		c.InstanceID = otherID
		for _, nonce := range []string{"", nonceFor(instanceID)} {
			f.put("nonce.jwt", nonce)
			p := f.start(c)
			settle(time.Minute)
			if s := f.status(); s.State != agent.StateRejected || !strings.Contains(s.Reason, instanceID) {
				t.Errorf("status %+v", s)
			}
			p.end()
			if len(server.seen().registrations) != 1 || f.file("nonce.jwt") != nonce {
				t.Error("another instance's nonce was spent")
			}
		}
		p := f.start(f.config())
		settle(time.Minute)
		if s := f.status(); s.State != agent.StateConnected || f.file("identity.key") != identity || f.file("keys/web.key") == "" {
			t.Errorf("with the right id again: %+v", s)
		}
		p.end()
	})
}

// TestSpentNonceAgain: a spent nonce is put back, and the certificate has expired by the local
// clock. The server judges the certificate, as without a nonce.
func TestSpentNonceAgain(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		p := f.start(f.config())
		settle(time.Second)
		p.end()
		server.set(func() { server.register = refusing(rpc.Denied.Errorf("the nonce has expired")) })
		f.put("nonce.jwt", nonce(cluster, shard))
		c := f.config()
		ahead := 48 * time.Hour
		c.Now = func() time.Time { return time.Now().Add(ahead) }
		f.connects(c)
		if f.file("nonce.jwt") != "" {
			t.Error("a nonce of no use is still there")
		}
	})
}

// TestAnotherNonce: a rejected agent uses a new nonce without a restart, once it is complete
// and for this instance.
func TestAnotherNonce(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.register = refusing(rpc.Denied.Errorf("the nonce has expired")) })
		p := f.start(f.config())
		settle(time.Hour)
		for _, text := range []string{"", "half of", nonceFor(otherID)} {
			f.put("nonce.jwt", text)
			settle(time.Minute)
			if s := f.status(); s.State != agent.StateRejected || len(server.seen().registrations) != 1 {
				t.Errorf("with %q: %+v", text, s)
			}
		}
		server.set(func() { server.register = server.grant })
		f.put("nonce.jwt", nonceFor(instanceID)+"\n")
		settle(time.Minute)
		if s := f.status(); s.State != agent.StateConnected {
			t.Errorf("with a new nonce: %+v", s)
		}
		p.end()
	})
}
