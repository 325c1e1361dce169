package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// TestFailingSources: an instance with an unreadable source gets nothing, and the others get
// everything; the problem is reported once, and reads are retried.
func TestFailingSources(t *testing.T) {
	for what, c := range map[string]struct {
		spoil func(*fixture)
		mend  func(*fixture)
		want  string
	}{
		"no secret": {
			func(f *fixture) { delete(f.secrets, "db") }, func(f *fixture) { f.secrets["db"] = "x" },
			"default/web FilesInvalid: file db.conf: no secret db",
		},
		"secrets are down": {
			func(f *fixture) { f.noSecrets = fmt.Errorf("%w: %w", object.ErrUnknown, errDown) }, func(f *fixture) { f.noSecrets = nil },
			"default/web StorageError: file db.conf: object storage outcome unknown: it is down",
		},
		"no object": {
			func(f *fixture) { _ = f.inner.Delete(f.ctx, "files/net.json") }, func(f *fixture) { f.put("files/net.json", "{}") },
			"default/web FilesInvalid: file net.json: object files/net.json does not exist",
		},
		"no JSON": {
			func(f *fixture) { f.put("files/net.json", "{") }, func(f *fixture) { f.put("files/net.json", "{}") },
			"default/web FilesInvalid: file net.json: not JSON",
		},
		"too large": {
			func(f *fixture) { f.put("files/net.json", strings.Repeat("1", 1<<20+1)) }, func(f *fixture) { f.put("files/net.json", "{}") },
			"default/web FilesInvalid: file net.json: files/net.json has 1048577 bytes: at most",
		},
		"a name of another": {
			func(f *fixture) { f.noPermit = errDown }, func(f *fixture) { f.noPermit = nil },
			"default/web FilesInvalid: file k.crt: certificates.k: it is down",
		},
		"no record of the keys": {
			func(f *fixture) { f.noBind = errDown }, func(f *fixture) { f.noBind = nil },
			"default/web StorageError: file k.crt: it is down",
		},
		"no log": {
			func(f *fixture) { f.noLog = errDown }, func(f *fixture) { f.noLog = nil },
			"default/web StorageError: file k.crt: it is down",
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, allKinds, func(t *testing.T, f *fixture) {
				c.spoil(f)
				a, b := f.connected("default"), f.connected("default")
				a.receivesNothing()
				b.receivesNothing()
				if a.upToDate() || b.upToDate() {
					t.Error("an instance without files is up to date")
				}
				if told := f.reported(); len(told) != 1 || !strings.HasPrefix(told[0], c.want) {
					t.Errorf("told %q, want %q", told, c.want)
				}
				locked(f, func() bool { c.mend(f); return true })
				f.d.Refreshed()
				for range 3 {
					time.Sleep(time.Minute)
					a.report()
					b.report()
				}
				a.inOrder()
				b.inOrder()
				if len(f.settled) != 1 {
					t.Errorf("settled %v", f.settled)
				}
			})
		})
	}
}

// TestOthersUnaffected: a failing file of one group does not affect others.
func TestOthersUnaffected(t *testing.T) {
	inBubble(t, `"a.conf": { "kind": "string", "content": "{{ if eq .Vars.level \"info\" }}{{ .Vars.nothing }}{{ end }}" }`,
		func(t *testing.T, f *fixture) {
			a, other := f.connected("default"), f.connected("prod")
			a.receivesNothing()
			other.receives("a.conf")
			told := f.reported()
			if len(told) != 1 || !strings.HasPrefix(told[0], "default/web FilesInvalid: file a.conf: render content: template line 1") {
				t.Errorf("told %q", told)
			}
		})
}

// TestOneRequestForAll: a thousand agents cost one request to the store, and hardly any while
// nothing changes.
func TestOneRequestForAll(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		before := f.store.Counts()
		var all []*agent
		for range 200 {
			a := f.instance("default")
			all = append(all, a)
			go a.connectNow()
		}
		synctest.Wait()
		for _, a := range all {
			a.inOrder()
		}
		if n := f.store.Counts().Sub(before); n.Get != 1 || n.List != 1 || f.reads != 1 {
			t.Errorf("%d gets, %d listings, %d secrets read", n.Get, n.List, f.reads)
		}
		before = f.store.Counts()
		for range 60 {
			time.Sleep(time.Minute)
			for _, a := range all[:20] {
				a.report()
			}
			synctest.Wait()
		}
		if n := f.store.Counts().Sub(before); n.Total() > 4 || f.reads > 5 {
			t.Errorf("%+v requests in an hour, %d secrets read", n, f.reads)
		}
		// Rechecking a group costs no request either.
		before, reads := f.store.Counts(), f.reads
		for range 100 {
			f.d.Changed()
			synctest.Wait()
		}
		if n := f.store.Counts().Sub(before); n.Total() != 0 || f.reads != reads {
			t.Errorf("%+v requests for a hundred looks, %d secrets read", n, f.reads-reads)
		}
		f.put("files/net.json", `{"mtu": 9000}`)
		f.d.Refreshed()
		synctest.Wait()
		for _, a := range all {
			if string(a.disk["net.json"]) != `{"mtu": 9000}` {
				t.Fatal("a changed object did not arrive")
			}
		}
	})
}

func (a *agent) connectNow() {
	a.keys = a.site.d.OpenKeys(a.id, a.generate)
	a.files = a.site.d.OpenFiles(a.id, a.take)
	a.report()
}

// TestTenants: groups with the same name in two tenants are independent.
func TestTenants(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		a, b := f.connected("default"), f.connected("prod")
		a.inOrder()
		b.inOrder()
		if string(a.disk["app.conf"]) != "level=info on web-1" || string(b.disk["app.conf"]) != "level=prod on web-2" {
			t.Errorf("they have %s and %s", a.disk["app.conf"], b.disk["app.conf"])
		}
		log := f.logged()
		if len(log) != 2 || !strings.Contains(log[0], "/default.") || !strings.Contains(log[1], "/prod.") {
			t.Errorf("logged %v", log)
		}
		a.received()
		b.received()
		f.d.Changed(fleet.GroupKey{Tenant: "prod", Name: "web"})
		a.receivesNothing()
	})
}

// TestGroupGone: an instance whose group is no longer defined keeps its files until it is
// removed.
func TestGroupGone(t *testing.T) {
	inBubble(t, allKinds, func(_ *testing.T, f *fixture) {
		a := f.connected("default")
		a.received()
		locked(f, func() bool {
			key := fleet.GroupKey{Tenant: "default", Name: "web"}
			f.groups = map[fleet.GroupKey]fleet.Group{key: {Key: key, Removed: true}}
			return true
		})
		f.d.Refreshed()
		a.report()
		a.receivesNothing()
	})
}
