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

// TestFailingSources: who needs what can't be read gets nothing, and the others
// all they need; it is told once, and tried again.
func TestFailingSources(t *testing.T) {
	for what, c := range map[string]struct {
		spoil func(*site)
		mend  func(*site)
		want  string
	}{
		"no secret": {
			func(s *site) { delete(s.secrets, "db") }, func(s *site) { s.secrets["db"] = "x" },
			"default/web FilesInvalid: file db.conf: no secret db",
		},
		"secrets are down": {
			func(s *site) { s.noSecrets = fmt.Errorf("%w: %w", object.ErrUnknown, errDown) }, func(s *site) { s.noSecrets = nil },
			"default/web StorageError: file db.conf: object storage outcome unknown: it is down",
		},
		"no object": {
			func(s *site) { _ = s.inner.Delete(s.ctx, "files/net.json") }, func(s *site) { s.put("files/net.json", "{}") },
			"default/web FilesInvalid: file net.json: there is no object files/net.json",
		},
		"no JSON": {
			func(s *site) { s.put("files/net.json", "{") }, func(s *site) { s.put("files/net.json", "{}") },
			"default/web FilesInvalid: file net.json: not JSON",
		},
		"too large": {
			func(s *site) { s.put("files/net.json", strings.Repeat("1", 1<<20+1)) }, func(s *site) { s.put("files/net.json", "{}") },
			"default/web FilesInvalid: file net.json: files/net.json has 1048577 bytes: at most",
		},
		"no record of the keys": {
			func(s *site) { s.noBind = errDown }, func(s *site) { s.noBind = nil },
			"default/web StorageError: file k.crt: it is down",
		},
		"no log": {
			func(s *site) { s.noLog = errDown }, func(s *site) { s.noLog = nil },
			"default/web StorageError: file k.crt: it is down",
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, allKinds, func(t *testing.T, s *site) {
				c.spoil(s)
				a, b := s.connected("default"), s.connected("default")
				a.receivesNothing()
				b.receivesNothing()
				if told := s.reported(); len(told) != 1 || !strings.HasPrefix(told[0], c.want) {
					t.Errorf("told %q, want %q", told, c.want)
				}
				locked(s, func() bool { c.mend(s); return true })
				s.d.Refreshed()
				for range 3 {
					time.Sleep(time.Minute)
					a.report()
					b.report()
				}
				a.inOrder()
				b.inOrder()
				if len(s.settled) != 1 {
					t.Errorf("settled %v", s.settled)
				}
			})
		})
	}
}

// TestOthersUnaffected: one group's failing file is no other group's.
func TestOthersUnaffected(t *testing.T) {
	inBubble(t, `"a.conf": { "kind": "string", "content": "{{ if eq .Vars.level \"info\" }}{{ .Vars.nothing }}{{ end }}" }`,
		func(t *testing.T, s *site) {
			a, other := s.connected("default"), s.connected("prod")
			a.receivesNothing()
			other.receives("a.conf")
			told := s.reported()
			if len(told) != 1 || !strings.HasPrefix(told[0], "default/web FilesInvalid: file a.conf: render content: template line 1") {
				t.Errorf("told %q", told)
			}
		})
}

// TestOneRequestForAll: the store is asked once for a thousand agents, and hardly
// at all when nothing changes.
func TestOneRequestForAll(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, s *site) {
		before := s.store.Counts()
		var all []*agent
		for range 200 {
			a := s.instance("default")
			all = append(all, a)
			go a.connectNow()
		}
		synctest.Wait()
		for _, a := range all {
			a.inOrder()
		}
		if n := s.store.Counts().Sub(before); n.Get != 1 || n.List != 1 || s.reads != 1 {
			t.Errorf("%d gets, %d listings, %d secrets read", n.Get, n.List, s.reads)
		}
		before = s.store.Counts()
		for range 60 {
			time.Sleep(time.Minute)
			for _, a := range all[:20] {
				a.report()
			}
			synctest.Wait()
		}
		if n := s.store.Counts().Sub(before); n.Total() > 4 || s.reads > 5 {
			t.Errorf("%+v requests in an hour, %d secrets read", n, s.reads)
		}
		// A group that was looked at again, and again, costs no request either.
		before, reads := s.store.Counts(), s.reads
		for range 100 {
			s.d.Changed()
			synctest.Wait()
		}
		if n := s.store.Counts().Sub(before); n.Total() != 0 || s.reads != reads {
			t.Errorf("%+v requests for a hundred looks, %d secrets read", n, s.reads-reads)
		}
		s.put("files/net.json", `{"mtu": 9000}`)
		s.d.Refreshed()
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

// TestTenants: groups of one name in two tenants have nothing of each other.
func TestTenants(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, s *site) {
		a, b := s.connected("default"), s.connected("prod")
		a.inOrder()
		b.inOrder()
		if string(a.disk["app.conf"]) != "level=info on web-1" || string(b.disk["app.conf"]) != "level=prod on web-2" {
			t.Errorf("they have %s and %s", a.disk["app.conf"], b.disk["app.conf"])
		}
		log := s.logged()
		if len(log) != 2 || !strings.Contains(log[0], "/default.") || !strings.Contains(log[1], "/prod.") {
			t.Errorf("logged %v", log)
		}
		a.received()
		b.received()
		s.d.Changed(fleet.GroupKey{Tenant: "prod", Name: "web"})
		a.receivesNothing()
	})
}

// TestGroupGone: an instance whose group is not defined any more keeps its files
// for what is left of its life.
func TestGroupGone(t *testing.T) {
	inBubble(t, allKinds, func(_ *testing.T, s *site) {
		a := s.connected("default")
		a.received()
		locked(s, func() bool {
			key := fleet.GroupKey{Tenant: "default", Name: "web"}
			s.groups = map[fleet.GroupKey]fleet.Group{key: {Key: key, Removed: true}}
			return true
		})
		s.d.Refreshed()
		a.report()
		a.receivesNothing()
	})
}
