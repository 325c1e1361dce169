package delivery_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/delivery"
)

func inBubble(t *testing.T, files string, story func(*testing.T, *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { story(t, newFixture(t, files)) })
}

// TestFirstSet: an instance gets a file of every kind, and then nothing more.
func TestFirstSet(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		a := f.connected("default")
		p := a.receives("app.conf", "app.env", "app.json", "db.conf", "k.crt", "net.json")
		if !slices.Equal(p.Names, names(p)) {
			t.Errorf("the commit names %v", p.Names)
		}
		a.inOrder()
		for name, want := range map[string]string{
			"app.conf": "level=info on web-1", "app.env": "LEVEL=info\nN=3\n", "db.conf": "password", "net.json": `{"mtu": 1500}`,
			"app.json": "{\n  \"level\": \"info\",\n  \"list\": [\n    1,\n    \"<>\"\n  ]\n}\n",
		} {
			if have := string(a.disk[name]); have != want {
				t.Errorf("%s is %q, want %q", name, have, want)
			}
		}
		if cert := parse(a.disk["k.crt"]); cert.Subject.CommonName != "web-1" || cert.IPAddresses[0].String() != "10.0.0.1" {
			t.Errorf("the certificate is for %s, %v", cert.Subject, cert.IPAddresses)
		}
		if log := f.logged(); len(log) != 1 || !strings.HasPrefix(log[0], "certlog/dev-1/default.") {
			t.Errorf("logged %v", log)
		}
		for range 10 {
			time.Sleep(time.Minute)
			a.report()
		}
		a.receivesNothing()
		if f.d.ConfigHash(a.id) != a.hash {
			t.Errorf("the last hash is said to be %q", f.d.ConfigHash(a.id))
		}
	})
}

// TestNoFiles: a template without files still has a hash to confirm, and requests no keys.
func TestNoFiles(t *testing.T) {
	inBubble(t, "", func(_ *testing.T, f *fixture) {
		a := f.connected("default")
		a.receives()
		a.inOrder()
		if len(a.asked) > 0 {
			f.t.Errorf("asked for keys: %v", a.asked)
		}
	})
}

// TestVarsChange: only the files that use the var are sent; the certificate does not and
// stays.
func TestVarsChange(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		a, other := f.connected("default"), f.connected("prod")
		a.received()
		other.received()
		f.define(allKinds, "debug")
		f.d.Changed(fleet.GroupKey{Tenant: "default", Name: "web"})
		a.receives("app.conf", "app.env", "app.json")
		a.inOrder()
		if !strings.Contains(string(a.disk["app.conf"]), "debug") {
			t.Errorf("the file says %s", a.disk["app.conf"])
		}
		other.receivesNothing()
	})
}

// TestUpToDate: an instance is up to date from the report that shows all files as they are now, until
// they change, it reports that one is missing, or it is no longer connected. One whose files are held gets no
// others.
func TestUpToDate(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		web := fleet.GroupKey{Tenant: "default", Name: "web"}
		a := f.connected("default")
		want := func(what string, yes bool) {
			t.Helper()
			if a.upToDate() != yes {
				t.Errorf("%s: up to date: %v, want %v", what, !yes, yes)
			}
		}
		want("new", true)
		f.define(allKinds, "debug")
		want("changed, before any notice", false)
		a.deaf = true
		f.d.Changed(web)
		want("sent, and not confirmed", false)
		a.deaf = false
		time.Sleep(10 * time.Second)
		a.report()
		time.Sleep(time.Second)
		want("sent again, and confirmed", true)

		f.put("files/net.json", `{"mtu": 9000}`)
		a.deaf = true
		f.d.Refreshed()
		want("another object", false)
		a.deaf = false
		time.Sleep(10 * time.Second)
		a.report()
		time.Sleep(time.Second)
		want("the other object arrived", true)

		f.put("files/net.json", "no JSON")
		f.d.Refreshed()
		want("a file can't be made", false)
		f.put("files/net.json", "{}")
		f.d.Refreshed()
		want("it can", true)

		f.d.CloseFiles(a.id, a.files)
		want("it can't be sent any file", false)
		a.files = f.d.OpenFiles(a.id, a.take)
		want("it can", true)
		f.d.Disconnected(a.id)
		want("no reports come", false)
		a.report()
		want("one came", true)
		a.disconnect()
		want("not connected", false)
		a.connect()
		want("connected again", true)
		for range 10 { // more often than a set is sent
			delete(a.disk, "app.conf")
			a.report()
			synctest.Wait()
		}
		want("a file is gone again and again", false)
		f.groups[web] = fleet.Group{Key: web, Template: "knd", FilesHeld: true}
		want("its files are held", true)
	})
}

// TestReconnect: after a new connection or a new leader nothing is sent to an instance that is
// up to date; only its keys must be submitted again.
func TestReconnect(t *testing.T) {
	inBubble(t, allKinds, func(_ *testing.T, f *fixture) {
		a := f.connected("default")
		a.received()
		for range 3 {
			a.disconnect()
			a.connect()
		}
		a.receivesNothing()
		a.disconnect()
		f.define(allKinds, "debug")
		a.connect()
		// The request of the certificate is not remembered.
		a.receives("app.conf", "app.env", "app.json", "k.crt")
		a.inOrder()
	})
}

// TestMissingFile: a missing or modified file is sent again.
func TestMissingFile(t *testing.T) {
	inBubble(t, allKinds, func(_ *testing.T, f *fixture) {
		a := f.connected("default")
		a.received()
		delete(a.disk, "app.env")
		a.disk["net.json"] = []byte("{}")
		a.report()
		a.receives("app.env", "net.json")
		delete(a.disk, "k.crt")
		a.report()
		a.receives("k.crt")
		a.inOrder()
	})
}

// TestLostPush: a lost push is sent again after a later report, but not after one that was
// written before it arrived.
func TestLostPush(t *testing.T) {
	inBubble(t, allKinds, func(_ *testing.T, f *fixture) {
		a := f.instance("default")
		a.deaf = true
		a.connect()
		a.receives("app.conf", "app.env", "app.json", "db.conf", "k.crt", "net.json")
		time.Sleep(time.Second)
		a.report()
		a.receivesNothing()
		time.Sleep(time.Minute)
		a.deaf = false
		a.report()
		a.receives("app.conf", "app.env", "app.json", "db.conf", "k.crt", "net.json")
		a.inOrder()
	})
}

// TestRefusedPush: a failure of the agent is reported, and retried with growing back-off until
// it succeeds.
func TestRefusedPush(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		a := f.instance("default")
		a.broken = "app.json"
		a.connect()
		attempts := len(a.received())
		for range 60 {
			time.Sleep(time.Minute)
			a.report()
			attempts += len(a.received())
		}
		if attempts < 5 || attempts > 15 {
			t.Errorf("%d attempts in an hour", attempts)
		}
		told := f.reported()
		const wrong = `file app.json: the agent can't write it: "disk full`
		if len(told) == 0 || !strings.HasPrefix(told[0], "default/web FilesInvalid: instance "+string(a.id)+": "+wrong) {
			t.Errorf("told %q", told)
		}
		if why, at := f.d.Trouble(a.id); !strings.HasPrefix(why, wrong) || at.IsZero() {
			t.Errorf("the instance's trouble is %q at %v", why, at)
		}
		a.broken = ""
		for range 11 {
			time.Sleep(time.Minute)
			a.report()
		}
		a.inOrder()
		if len(f.settled) != 1 {
			t.Errorf("settled %v", f.settled)
		}
		if why, _ := f.d.Trouble(a.id); why != "" {
			t.Errorf("the instance is still in trouble: %q", why)
		}
	})
}

// TestRefusedPushes: of many instances that can't write a file, one is named, once a minute at the
// most.
func TestRefusedPushes(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		for range 20 {
			a := f.instance("default")
			a.broken = "app.json"
			a.connect()
			time.Sleep(time.Second)
		}
		if told := f.reported(); len(told) != 1 {
			t.Errorf("told %q", told)
		}
	})
}

// TestRenewal: a certificate is renewed when a third of its life is left, with the same key.
func TestRenewal(t *testing.T) {
	inBubble(t, certificate, func(t *testing.T, f *fixture) {
		a := f.connected("default")
		a.receives("k.crt")
		first := parse(a.disk["k.crt"])
		for time.Until(first.NotAfter) > 8*time.Hour+time.Minute {
			time.Sleep(time.Minute)
			a.report()
			a.receivesNothing()
		}
		time.Sleep(time.Minute)
		a.report()
		a.receives("k.crt")
		second := parse(a.disk["k.crt"])
		if life := time.Until(second.NotAfter); life < 24*time.Hour-time.Second {
			t.Errorf("the new one lasts %s", life)
		}
		if second.SerialNumber.Cmp(first.SerialNumber) == 0 || len(f.logged()) != 2 {
			t.Errorf("serial %x after %x, log %v", second.SerialNumber, first.SerialNumber, f.logged())
		}
		a.report()
		a.receivesNothing()
	})
}

// TestEndOfTheCA: a certificate that can't be valid for longer is not renewed again and again.
func TestEndOfTheCA(t *testing.T) {
	inBubble(t, certificate, func(_ *testing.T, f *fixture) {
		time.Sleep(time.Until(f.ca.Certificate().NotAfter.Add(-2 * time.Hour)))
		a := f.connected("default")
		a.receives("k.crt")
		for range 60 {
			time.Sleep(time.Minute)
			a.report()
		}
		a.receivesNothing()
	})
}

// TestNewKey: a certificate follows its key.
func TestNewKey(t *testing.T) {
	inBubble(t, certificate, func(_ *testing.T, f *fixture) {
		a := f.connected("default")
		a.received()
		delete(a.held, "k")
		a.disconnect()
		a.connect()
		a.receives("k.crt")
		a.report()
		a.receivesNothing()
	})
}

// TestKeyComesLate: nothing is issued before a key is submitted, and no part of the set is
// sent alone.
func TestKeyComesLate(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		a := f.instance("default")
		a.keyless = true
		a.connect()
		a.receivesNothing()
		if a.upToDate() {
			t.Error("an instance without its certificate is up to date")
		}
		if len(a.asked) != 1 || len(a.asked[0]) != 1 || a.asked[0][0] != (delivery.KeyRequest{Name: "k", Algorithm: fleet.KeyEd25519}) {
			t.Errorf("asked for %v", a.asked)
		}
		if err := a.submit(); err != nil {
			t.Fatal(err)
		}
		a.receives("app.conf", "app.env", "app.json", "db.conf", "k.crt", "net.json")
		a.inOrder()
	})
}

// TestTemplateChange: added keys are requested, and removed files are removed.
func TestTemplateChange(t *testing.T) {
	inBubble(t, plain, func(t *testing.T, f *fixture) {
		a := f.connected("default")
		a.receives("app.conf")
		f.define(certificate, "info")
		f.d.Changed()
		p := a.receives("k.crt")
		a.inOrder()
		if !slices.Equal(p.Names, []string{"k.crt"}) || len(a.asked) != 1 {
			t.Errorf("the commit names %v, asked %v", p.Names, a.asked)
		}
		f.define(strings.Replace(certificate, `"name": "k"`, `"name": "k", "algorithm": "ecdsa-p256"`, 1), "info")
		a.keyless = true // it has another key of this name
		f.d.Changed()
		a.receivesNothing()
		if len(a.asked) != 2 || a.asked[1][0].Algorithm != fleet.KeyECDSAP256 {
			t.Errorf("asked %v", a.asked)
		}
		if err := a.submit(); err == nil || !strings.Contains(err.Error(), "want ecdsa-p256") {
			t.Errorf("a key of another algorithm: %v", err)
		}
		f.define(plain, "info")
		f.d.Changed()
		a.receives("app.conf")
		if err := a.submit(); err != nil { // a late answer to an earlier request
			t.Errorf("a late key: %v", err)
		}
	})
}
