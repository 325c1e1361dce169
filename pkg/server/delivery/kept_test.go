package delivery_test

import (
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/fleet"
	_ "github.com/nstance/nstance/pkg/rapidseed"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// Whatever changes, and in whatever order, an instance ends up with the files that a server would send
// that knows nothing of it.
func TestFilesFollowEveryChange(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rounds := rapid.SliceOfN(rapid.SliceOfN(rapid.Custom(drawStep), 1, 3), 1, 5).Draw(rt, "rounds")
		wrong := ""
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, allKinds)
			a := f.connected("default")
			for n, steps := range rounds {
				for _, s := range steps {
					s.take(f, a)
				}
				f.mu.Lock()
				f.noSecrets = nil
				f.mu.Unlock()
				f.d.Refreshed()
				a.settle()
				if have, want := a.texts(), f.fresh(a.id); !maps.Equal(have, want) && wrong == "" {
					wrong = fmt.Sprintf("after round %d the agent has %q, want %q", n, have, want)
				}
			}
			a.disconnect()
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// step changes one thing that an instance's files depend on, or the files on its disk.
type step struct {
	What    string
	Which   int // of the alternatives that What has
	Reports bool
	Waits   bool
}

func drawStep(t *rapid.T) step {
	return step{
		What:    rapid.SampledFrom([]string{"var", "definition", "secret", "outage", "object", "host", "loss", "connection"}).Draw(t, "what"),
		Which:   rapid.IntRange(0, 5).Draw(t, "which"),
		Reports: rapid.Bool().Draw(t, "reports"), Waits: rapid.Bool().Draw(t, "waits"),
	}
}

func (s step) take(f *fixture, a *agent) {
	switch s.What {
	case "var":
		f.define(allKinds, fmt.Sprint("level-", s.Which%2))
		f.d.Changed(fleet.GroupKey{Tenant: "default", Name: "web"})
	case "definition": // of files that use the same facts
		text := strings.Replace(allKinds, " on ", []string{" on ", " at "}[s.Which%2], 1)
		f.define(strings.Replace(text, `"N": 3`, []string{`"N": 3`, `"N": 4`, `"M": "x"`}[s.Which/2], 1), "info")
		f.d.Changed(fleet.GroupKey{Tenant: "default", Name: "web"})
	case "secret":
		f.mu.Lock()
		f.secrets["db"] = fmt.Sprint("password-", s.Which)
		f.mu.Unlock()
		f.d.Refreshed()
	case "outage": // until the end of the round
		f.mu.Lock()
		f.noSecrets = errDown
		f.mu.Unlock()
		f.d.Refreshed()
	case "object":
		f.put("files/net.json", fmt.Sprint(s.Which))
		f.d.Refreshed()
	case "host":
		f.mu.Lock()
		i := f.instances[a.id]
		i.Rev++
		i.Hostname = fmt.Sprint("host-", s.Which)
		f.instances[a.id] = i
		f.mu.Unlock()
		f.d.Changed()
	case "loss":
		a.mu.Lock()
		for n, name := range slices.Sorted(maps.Keys(a.disk)) {
			if n == s.Which {
				delete(a.disk, name)
			}
		}
		a.mu.Unlock()
	case "connection":
		a.disconnect()
		a.connect()
	}
	if s.Reports {
		a.report()
	}
	if s.Waits {
		synctest.Wait()
	}
}

// settle lets the agent report until it can have received everything.
func (a *agent) settle() {
	for range 30 {
		a.report()
		synctest.Wait()
		time.Sleep(10 * time.Second)
	}
}

// texts returns the contents of the agent's files other than certificates.
func (a *agent) texts() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]string{}
	for name, content := range a.disk {
		if !strings.HasSuffix(name, ".crt") {
			out[name] = string(content)
		}
	}
	return out
}

// fresh returns the files that a new server sends an instance that has none.
func (f *fixture) fresh(id fleet.InstanceID) map[string]string {
	before := f.d
	f.d = f.newDelivery()
	b := &agent{site: f, id: id, disk: map[string][]byte{}, failed: map[string]string{}, held: map[string]ed25519.PrivateKey{}}
	b.connect()
	b.settle()
	b.disconnect()
	synctest.Wait()
	f.d = before
	return b.texts()
}

// An instance that lost a file that a change does not affect is sent it together with those that it does.
func TestLostBesideAChange(t *testing.T) {
	inBubble(t, plain+`, "fixed.conf": { "kind": "string", "content": "fixed" }`, func(t *testing.T, f *fixture) {
		a := f.connected("default")
		a.receives("app.conf", "fixed.conf")
		a.inOrder()
		delete(a.disk, "fixed.conf")
		f.define(plain+`, "fixed.conf": { "kind": "string", "content": "fixed" }`, "debug")
		a.report()
		p := a.receives("app.conf", "fixed.conf")
		if string(p.Files[0].Content) != "level=debug" || string(p.Files[1].Content) != "fixed" {
			t.Errorf("sent %q", p.Files)
		}
		a.inOrder()
	})
}

// Files that are as before count towards the limit of a set.
func TestKeptFilesCount(t *testing.T) {
	big := func(n int) string {
		return fmt.Sprintf(`"%d.conf": { "kind": "string", "content": "{{ range 65000 }}0123456789{{ end }}" }`, n)
	}
	inBubble(t, big(1)+","+big(2)+","+big(3)+","+big(4), func(t *testing.T, f *fixture) {
		a := f.connected("default")
		a.received()
		a.inOrder()
		f.define(big(1)+","+big(2)+","+big(3)+","+big(4)+","+big(5), "info")
		f.d.Changed()
		a.receivesNothing()
		if told := f.reported(); len(told) != 1 || !strings.Contains(told[0], "bytes: at most") {
			t.Errorf("told %q, want that the set is too large", told)
		}
	})
}

// An instance gets a changed secret as soon as the server notices because of another one.
func TestNoticedForAll(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		a := f.connected("default")
		time.Sleep(10 * time.Minute)
		b := f.connected("default")
		f.mu.Lock()
		f.secrets["db"] = "another"
		f.mu.Unlock()
		time.Sleep(6 * time.Minute) // the value that the server read for the first one is old now
		a.report()
		synctest.Wait()
		for _, one := range []*agent{a, b} {
			if got := string(one.disk["db.conf"]); got != "another" {
				t.Errorf("%s has %q", one.id, got)
			}
		}
	})
}

// However many instances a large file changes for, only so many are sent it at the same time.
func TestLargeFilesTakeTurns(t *testing.T) {
	const agents, most = 80, 64
	inBubble(t, `"big.conf": { "kind": "storage", "source": "files/big.conf" }`, func(t *testing.T, f *fixture) {
		var sending, worst atomic.Int32
		var all []*agent
		for n := range agents {
			a := f.instance("default")
			all = append(all, a)
			f.d.OpenFiles(a.id, func(p delivery.Push) error {
				worst.Store(max(worst.Load(), sending.Add(1)))
				time.Sleep(time.Duration(1+n) * time.Millisecond)
				sending.Add(-1)
				return a.take(p)
			})
		}
		for _, content := range []string{"a", "b"} {
			f.put("files/big.conf", strings.Repeat(content, 1<<20))
			f.d.Refreshed()
			for _, a := range all {
				a.report()
			}
			time.Sleep(time.Minute)
			for _, a := range all {
				if a.report(); !strings.HasPrefix(string(a.disk["big.conf"]), content) {
					t.Fatalf("%s does not have %s", a.id, content)
				}
			}
			if n := worst.Swap(0); n > most || n < most/2 {
				t.Errorf("%s: %d at the same time, want at most %d", content, n, most)
			}
		}
	})
}
