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
		w := newWorld(map[string]string{"b": "1", "a": "1", "c": "1"})
		h := w.run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "a=1", "b=1", "c=1", "end")
		expect(t, s)
		w.set("b", "2")
		w.set("d", "1")
		h.Mark("b")
		h.Mark("d")
		h.Mark("a") // nothing of it is different
		pass()
		have := read(t, s)
		if slices.Sort(have); !slices.Equal(have, []string{"b=2", "d=1"}) {
			t.Errorf("read %v", have)
		}
		w.remove("a")
		h.Mark("a")
		h.Mark("never-was")
		pass()
		expect(t, s, "-a")
		w.set("a", "3")
		h.Mark("a")
		pass()
		expect(t, s, "a=3")
	})
}

// TestEmptySnapshot ends at once.
func TestEmptySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newWorld(map[string]string{}).run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "end")
	})
}

// TestWants: a reader is told of what it wants only, in the snapshot and after it.
func TestWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "mine", "b": "other"})
		h := w.run(t)
		s := h.Subscribe(func(v string) bool { return strings.HasPrefix(v, "mine") })
		defer s.Close()
		expect(t, s, "a=mine", "end")
		w.set("a", "mine 2")
		w.set("b", "other 2")
		w.set("c", "other")
		h.Resync()
		pass()
		expect(t, s, "a=mine 2")
		w.remove("a")
		w.remove("b")
		h.Resync()
		pass()
		expect(t, s, "-a")
	})
}

// TestCoalesce: who reads slowly gets the latest of each key, once, and nothing
// of what came and went, or went back to what is known.
func TestCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1", "b": "1"})
		h := w.run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "a=1", "b=1", "end")
		for n := range 50 {
			w.set("a", fmt.Sprint(n))
			w.set("b", fmt.Sprint(n))
			w.set("c", "here")
			h.Resync()
			pass()
		}
		w.set("b", "1")
		w.remove("c")
		h.Resync()
		pass()
		expect(t, s, "a=49")
	})
}

// TestGoneWhileItWaits: a value of the snapshot that is gone before it was read
// is not told of, and does not keep the snapshot from ending.
func TestGoneWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1", "b": "1"})
		h := w.run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		synctest.Wait()
		w.remove("a")
		w.set("b", "2")
		h.Resync()
		pass()
		expect(t, s, "b=2", "end")
	})
}

// TestLastWordStays: without TellGone a key leaves in silence, but what waits is
// told.
func TestLastWordStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "drains"})
		h := w.run(t, func(c *broadcast.Config[string, string]) {
			c.TellGone, c.Initial = false, func(v string) bool { return v != "deleted" }
		})
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "a=drains", "end")
		w.set("a", "deleted")
		h.Mark("a")
		pass()
		late := h.Subscribe(anything)
		defer late.Close()
		pass()
		w.remove("a")
		h.Mark("a")
		pass()
		expect(t, s, "a=deleted")
		expect(t, late, "end")
		w.set("a", "deleted") // another life
		h.Mark("a")
		pass()
		expect(t, s, "a=deleted")
	})
}

// TestChangeDuringSnapshot: what changes while the snapshot is made, after its
// key was looked at, follows it.
func TestChangeDuringSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1", "b": "1"})
		h := w.run(t)
		// The reader of a key already looked at, and one that is new, at the moment
		// when the other key is looked at.
		changed := false
		w.onLook = func(key string) {
			if w.lookedAt("a")+w.lookedAt("b") == 1 && !changed {
				changed = true
				other := map[string]string{"a": "b", "b": "a"}[key]
				w.set(other, "2")
				w.set("c", "1")
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

// TestSnapshotIsNewerThanItsReader: who joins while others' snapshot is made gets
// one of its own, so that nothing in it is older than the joining.
func TestSnapshotIsNewerThanItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1", "b": "1"})
		h := w.run(t)
		var late *reader
		w.onLook = func(key string) {
			if w.lookedAt("a")+w.lookedAt("b") == 1 && late == nil {
				w.set(map[string]string{"a": "b", "b": "a"}[key], "2") // that was looked at
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

// TestPace: nothing is looked at while nobody reads, and a key that changes all
// the time, with many readers, is looked at ten times a second.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "0"})
		h := w.run(t)
		h.Mark("a")
		h.Resync()
		time.Sleep(5 * broadcast.ResyncInterval)
		if n := w.lookedAt("a"); n != 0 {
			t.Fatalf("looked %d times for nobody", n)
		}
		var readers []*reader
		for range 20 {
			readers = append(readers, h.Subscribe(anything))
		}
		synctest.Wait()
		before := w.lookedAt("a")
		for n := range 10_000 {
			w.set("a", fmt.Sprint(n))
			h.Mark("a")
			time.Sleep(time.Millisecond)
		}
		if n := w.lookedAt("a") - before; n < 90 || n > 102 {
			t.Errorf("looked %d times in ten seconds", n)
		}
		for _, s := range readers {
			s.Close()
		}
		pass()
		before = w.lookedAt("a")
		h.Mark("a")
		time.Sleep(5 * broadcast.ResyncInterval)
		if n := w.lookedAt("a") - before; n != 0 {
			t.Errorf("looked %d times after all had left", n)
		}
	})
}

// TestResync: what changes without a mark is seen within the interval.
func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1", "b": "1"})
		h := w.run(t)
		s := h.Subscribe(anything)
		defer s.Close()
		expect(t, s, "a=1", "b=1", "end")
		w.set("a", "2")
		w.remove("b")
		time.Sleep(broadcast.ResyncInterval + time.Second)
		synctest.Wait()
		have := read(t, s)
		if slices.Sort(have); !slices.Equal(have, []string{"-b", "a=2"}) {
			t.Errorf("read %v", have)
		}
	})
}

// TestCutOff: who lets too many keys wait is cut off, others are not, and the
// snapshot may be of any size.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{})
		for n := range 100 {
			w.set(fmt.Sprint("old", n), "1")
		}
		h := w.run(t, func(c *broadcast.Config[string, string]) { c.MaxPending = 10 })
		slow, quick := h.Subscribe(anything), h.Subscribe(anything)
		defer slow.Close()
		defer quick.Close()
		for n := range 11 {
			pass()
			read(t, quick)
			if _, _, err := slow.Take(); err != nil { // one of the snapshot's
				t.Fatalf("cut off with %d changes waiting", n)
			}
			w.set(fmt.Sprint("new", n), "1")
			h.Mark(fmt.Sprint("new", n))
		}
		pass()
		expect(t, quick, "new10=1")
		select {
		case <-slow.Ready():
		default:
			t.Error("the reader is not woken")
		}
		if _, _, err := slow.Take(); !errors.Is(err, broadcast.ErrBehind) {
			t.Errorf("slow reader: %v", err)
		}
		w.set("more", "1")
		h.Mark("more") // with one reader cut off
		pass()
		expect(t, quick, "more=1")
	})
}

// TestEnd: the end of a hub is the end of its subscriptions, and of those that
// come later.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1"})
		h := broadcast.NewHub(broadcast.Config[string, string]{
			Keys: w.keys, Look: w.look, Digest: func(string) broadcast.Digest { return broadcast.Digest{} },
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
			if _, _, err := one.Take(); !errors.Is(err, broadcast.ErrClosed) {
				t.Errorf("a subscription of an ended hub: %v", err)
			}
			one.Close()
		}
	})
}

// TestAgreement: whatever changes in whatever order, a reader that comes, goes
// and dawdles at random knows in the end exactly what is there, and never sees a
// key's version go back.
func TestAgreement(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			w := newWorld(map[string]string{})
			h := w.run(t)
			var s *reader
			known, version := map[string]string{}, 0
			take := func() {
				item, ok, err := s.Take()
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
					w.set(key, fmt.Sprintf("%06d", version))
					h.Mark(key)
				case 2:
					w.remove(key)
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
			if !maps.Equal(known, w.values) {
				t.Fatalf("seed %d: the reader knows %v, there is %v", seed, known, w.values)
			}
		})
	}
}
