package broadcast_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/server/broadcast"
)

func TestSnapshotThenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"b": "1", "a": "1", "c": "1"})
		h := f.run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "a=1", "b=1", "c=1", "end")
		expect(t, s)
		f.set("b", "2")
		f.set("d", "1")
		h.Mark("b")
		h.Mark("d")
		h.Mark("a") // without a change
		pass()
		have := read(t, s)
		if slices.Sort(have); !slices.Equal(have, []string{"b=2", "d=1"}) {
			t.Errorf("read %v", have)
		}
		f.remove("a")
		h.Mark("a")
		h.Mark("never-was")
		pass()
		expect(t, s, "-a")
		f.set("a", "3")
		h.Mark("a")
		pass()
		expect(t, s, "a=3")
	})
}

// TestEmptySnapshot: an empty snapshot ends at once.
func TestEmptySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(map[string]string{}).run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "end")
	})
}

// TestWants: a reader receives only matching values, in the snapshot and after it.
func TestWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "mine", "b": "other"})
		h := f.run(t)
		s := h.Subscribe(func(v string) bool { return strings.HasPrefix(v, "mine") })
		defer s.Close()
		expect(t, s, "a=mine", "end")
		f.set("a", "mine 2")
		f.set("b", "other 2")
		f.set("c", "other")
		h.Resync()
		pass()
		expect(t, s, "a=mine 2")
		f.remove("a")
		f.remove("b")
		h.Resync()
		pass()
		expect(t, s, "-a")
	})
}

// TestCoalesce: a slow reader gets the latest value of each key, once, and no intermediate or
// reverted ones.
func TestCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1", "b": "1"})
		h := f.run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "a=1", "b=1", "end")
		for n := range 50 {
			f.set("a", fmt.Sprint(n))
			f.set("b", fmt.Sprint(n))
			f.set("c", "here")
			h.Resync()
			pass()
		}
		f.set("b", "1")
		f.remove("c")
		h.Resync()
		pass()
		expect(t, s, "a=49")
	})
}

// TestGoneWhileItWaits: a value of the snapshot that is removed before it was read is skipped,
// and does not keep the snapshot from ending.
func TestGoneWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1", "b": "1"})
		h := f.run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		synctest.Wait()
		f.remove("a")
		f.set("b", "2")
		h.Resync()
		pass()
		expect(t, s, "b=2", "end")
	})
}

// TestLastWordStays: without TellGone a key is removed silently, but a queued value is sent.
func TestLastWordStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "drains"})
		h := f.run(t, func(c *broadcast.Config[string, string]) {
			c.TellGone, c.Initial = false, func(v string) bool { return v != "deleted" }
		})
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "a=drains", "end")
		f.set("a", "deleted")
		h.Mark("a")
		pass()
		late := h.Subscribe(anything)
		defer late.Close()
		pass()
		f.remove("a")
		h.Mark("a")
		pass()
		expect(t, s, "a=deleted")
		expect(t, late, "end")
		f.set("a", "deleted") // a new life of the key
		h.Mark("a")
		pass()
		expect(t, s, "a=deleted")
	})
}

// TestChangeDuringSnapshot: a change after a key was read for the snapshot is sent after it.
func TestChangeDuringSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1", "b": "1"})
		h := f.run(t)
		// Changes a key that was already read, and a new one, while the other key is read.
		changed := false
		f.onLook = func(key string) {
			if f.lookedAt("a")+f.lookedAt("b") == 1 && !changed {
				changed = true
				other := map[string]string{"a": "b", "b": "a"}[key]
				f.set(other, "2")
				f.set("c", "1")
				h.Mark(other)
				h.Mark("c")
			}
		}
		s := h.Subscribe(anything)
		defer s.Close()
		synctest.Wait()
		snapshot := read(t, s)
		if len(snapshot) != 3 || snapshot[2] != "end" {
			t.Fatalf("snapshot %v", snapshot)
		}
		pass()
		have := read(t, s)
		if slices.Sort(have); len(have) != 2 || !strings.HasSuffix(have[0], "=2") || have[1] != "c=1" {
			t.Errorf("snapshot %v, then %v", snapshot, have)
		}
	})
}

// TestSnapshotIsNewerThanItsReader: a reader that joins while a snapshot is made for others
// gets its own, so that nothing in it is older than its joining.
func TestSnapshotIsNewerThanItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1", "b": "1"})
		h := f.run(t)
		var late *reader
		f.onLook = func(key string) {
			if f.lookedAt("a")+f.lookedAt("b") == 1 && late == nil {
				f.set(map[string]string{"a": "b", "b": "a"}[key], "2") // already read
				late = h.Subscribe(anything)
			}
		}
		first := h.Subscribe(anything)
		defer first.Close()
		synctest.Wait()
		defer late.Close()
		have := read(t, late)
		pass()
		have = append(have, read(t, late)...)
		if len(have) != 3 || !strings.Contains(strings.Join(have, " "), "=2") || have[2] != "end" {
			t.Errorf("the late one's snapshot is %v", have)
		}
	})
}

// TestPace: nothing is read without readers, and a key that changes continuously, with many
// readers, is read ten times a second.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "0"})
		h := f.run(t)
		h.Mark("a")
		h.Resync()
		time.Sleep(5 * broadcast.ResyncInterval)
		if n := f.lookedAt("a"); n != 0 {
			t.Fatalf("looked %d times without readers", n)
		}
		var readers []*reader
		for range 20 {
			readers = append(readers, h.Subscribe(anything))
		}
		synctest.Wait()
		before := f.lookedAt("a")
		for n := range 10_000 {
			f.set("a", fmt.Sprint(n))
			h.Mark("a")
			time.Sleep(time.Millisecond)
		}
		if n := f.lookedAt("a") - before; n < 90 || n > 102 {
			t.Errorf("looked %d times in ten seconds", n)
		}
		for _, s := range readers {
			s.Close()
		}
		pass()
		before = f.lookedAt("a")
		h.Mark("a")
		time.Sleep(5 * broadcast.ResyncInterval)
		if n := f.lookedAt("a") - before; n != 0 {
			t.Errorf("looked %d times after all had left", n)
		}
	})
}

// TestResync: an unmarked change is seen within the interval.
func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1", "b": "1"})
		h := f.run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "a=1", "b=1", "end")
		f.set("a", "2")
		f.remove("b")
		time.Sleep(broadcast.ResyncInterval + time.Second)
		synctest.Wait()
		have := read(t, s)
		if slices.Sort(have); !slices.Equal(have, []string{"-b", "a=2"}) {
			t.Errorf("read %v", have)
		}
	})
}

// TestCutOff: a reader with too many queued keys fails, others do not, and the snapshot may be
// of any size.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{})
		for n := range 100 {
			f.set(fmt.Sprint("old", n), "1")
		}
		h := f.run(t, func(c *broadcast.Config[string, string]) { c.MaxPending = 10 })
		slow, quick := h.Subscribe(anything), h.Subscribe(anything)
		defer slow.Close()
		defer quick.Close()
		for n := range 11 {
			pass()
			read(t, quick)
			if _, _, err := slow.Next(); err != nil { // of the snapshot
				t.Fatalf("cut off with %d changes waiting", n)
			}
			f.set(fmt.Sprint("new", n), "1")
			h.Mark(fmt.Sprint("new", n))
		}
		pass()
		expect(t, quick, "new10=1")
		select {
		case <-slow.Ready():
		default:
			t.Error("the reader is not woken")
		}
		if _, _, err := slow.Next(); !errors.Is(err, broadcast.ErrBehind) {
			t.Errorf("slow reader: %v", err)
		}
		f.set("more", "1")
		h.Mark("more") // one reader has failed
		pass()
		expect(t, quick, "more=1")
	})
}

// TestEnd: the end of a hub ends its subscriptions, current and future ones.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1"})
		h := broadcast.NewHub(broadcast.Config[string, string]{
			Keys: f.keys, Look: f.look, Digest: func(string) broadcast.Digest { return broadcast.Digest{} },
			Compare: cmp.Compare[string], Initial: anything, MaxPending: 1,
		})
		ctx, cancel := context.WithCancel(t.Context())
		go h.Run(ctx)
		s := h.Subscribe(anything)
		expect(t, s, "a=1", "end")
		cancel()
		synctest.Wait()
		late := h.Subscribe(anything)
		for _, one := range []*reader{s, late} {
			<-one.Ready()
			if _, _, err := one.Next(); !errors.Is(err, broadcast.ErrClosed) {
				t.Errorf("a subscription of an ended hub: %v", err)
			}
			one.Close()
		}
	})
}

// TestAgreement: whatever changes in whatever order, readers that join, leave and pause at
// random end up with exactly the current values, and never see a key's version go back.
func TestAgreement(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			f := newFixture(map[string]string{})
			h := f.run(t)
			var s *reader
			known, version := map[string]string{}, 0
			take := func() {
				item, ok, err := s.Next()
				switch {
				case err != nil:
					t.Fatal(err)
				case !ok || item.End:
				case item.Gone:
					if known[item.Key] == "" {
						t.Fatalf("seed %d: %s is gone, and was never there", seed, item.Key)
					}
					delete(known, item.Key)
				case item.Value <= known[item.Key]:
					t.Fatalf("seed %d: %s=%s after %s", seed, item.Key, item.Value, known[item.Key])
				default:
					known[item.Key] = item.Value
				}
			}
			for range 300 {
				key := string(rune('a' + random.IntN(6)))
				switch random.IntN(8) {
				case 0, 1:
					version++
					f.set(key, fmt.Sprintf("%06d", version))
					h.Mark(key)
				case 2:
					f.remove(key)
					h.Mark(key)
				case 3:
					if s != nil && random.IntN(4) == 0 {
						s.Close()
						s = nil
					} else if s == nil {
						s, known = h.Subscribe(anything), map[string]string{}
					}
				case 4:
					time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
				default:
					if s != nil {
						take()
					}
				}
			}
			if s == nil {
				s, known = h.Subscribe(anything), map[string]string{}
			}
			defer s.Close()
			pass()
			for range 20 {
				take()
			}
			if !maps.Equal(known, f.values) {
				t.Fatalf("seed %d: the reader knows %v, there is %v", seed, known, f.values)
			}
		})
	}
}
