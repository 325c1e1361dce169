package broadcast_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/server/broadcast"
)

// lasting is a hub that can be resumed, of values that may be a last word: its keys
// leave in silence, as those of instances do.
func lasting(c *broadcast.Config[string, string]) {
	c.TellGone, c.Linger = false, time.Minute
	c.Last = func(v string) bool { return strings.HasSuffix(v, "deleted") }
}

// heard is what a reader is told now, and where it then is.
func heard(t *testing.T, s *reader) (words []string, at broadcast.Revision) {
	t.Helper()
	pass()
	for {
		item, ok, err := s.Take()
		switch {
		case err != nil:
			t.Fatalf("the reader is cut off: %v", err)
		case !ok:
			return words, at
		case item.End && item.Resumed:
			words = append(words, "resumed")
		case item.End:
			words = append(words, "end")
		default:
			words = append(words, item.Key+"="+item.Value)
		}
		at = item.Revision
	}
}

func same(t *testing.T, have []string, want ...string) {
	t.Helper()
	if !slices.Equal(have, want) {
		t.Errorf("read %v, want %v", have, want)
	}
}

// change makes a change and lets the hub see it.
func (w *world) change(h *hub, key, value string) {
	w.set(key, value)
	h.Mark(key)
	pass()
}

// TestResume: who comes back within the time is told only what has changed since,
// what ended and is gone by then included.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1", "b": "1", "c": "1"})
		h := w.run(t, lasting, func(c *broadcast.Config[string, string]) {
			c.Initial = func(v string) bool { return v != "deleted" }
		})
		s := h.Subscribe(anything)
		words, at := heard(t, s)
		same(t, words, "a=1", "b=1", "c=1", "end")
		s.Close()
		w.change(h, "b", "2")
		w.change(h, "c", "deleted")
		w.change(h, "d", "1")
		s = h.Resume(anything, at)
		words, at = heard(t, s)
		same(t, words, "b=2", "c=deleted", "d=1", "resumed")
		w.change(h, "b", "3")
		w.change(h, "b", "2")
		w.change(h, "a", "1")
		words, _ = heard(t, s)
		same(t, words) // it went back to what is known
		w.change(h, "e", "1")
		words, last := heard(t, s)
		same(t, words, "e=1")
		s.Close()
		for range 2 {
			s = h.Resume(anything, last)
			words, _ = heard(t, s)
			same(t, words, "resumed")
			s.Close()
		}
		s = h.Resume(anything, at)
		words, _ = heard(t, s)
		same(t, words, "b=2", "e=1", "resumed") // who was not there for b's return
		s.Close()
	})
}

// TestNotResumed: everything is told where something may have been missed.
func TestNotResumed(t *testing.T) {
	for name, c := range map[string]struct {
		between func(w *world, h *hub)
		from    broadcast.Revision // added to where the reader was
		want    string
	}{
		"nothing happened":   {func(*world, *hub) {}, 0, "resumed"},
		"a revision to come": {func(*world, *hub) {}, 1, "a=1 b=1 end"},
		"too long away":      {func(*world, *hub) { time.Sleep(61 * time.Second) }, 0, "a=1 b=1 end"},
		"not too long":       {func(*world, *hub) { time.Sleep(59 * time.Second) }, 0, "resumed"},
		"an end that was not told": {func(w *world, h *hub) {
			w.change(h, "b", "deleted")
			w.remove("b")
			h.Mark("b")
			pass()
		}, 0, "a=1 end"},
		"gone without a last word": {func(w *world, h *hub) {
			w.remove("b")
			h.Mark("b")
			pass()
		}, 0, "a=1 end"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(map[string]string{"a": "1", "b": "1"})
				h := w.run(t, lasting)
				s := h.Subscribe(anything)
				_, at := heard(t, s)
				s.Close()
				c.between(w, h)
				s = h.Resume(anything, at+c.from)
				defer s.Close()
				words, _ := heard(t, s)
				same(t, words, strings.Fields(c.want)...)
			})
		})
	}
}

// TestToldEnd: what a reader was told the last word of may be forgotten.
func TestToldEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1", "b": "1"})
		h := w.run(t, lasting)
		s := h.Subscribe(anything)
		heard(t, s)
		w.change(h, "b", "deleted")
		words, at := heard(t, s)
		same(t, words, "b=deleted")
		s.Close()
		w.remove("b")
		h.Mark("b")
		pass()
		s = h.Resume(anything, at)
		defer s.Close()
		words, _ = heard(t, s)
		same(t, words, "resumed")
	})
}

// TestPlaceWithinSnapshot: a whole snapshot that broke off is not to be resumed; one
// of changes is, from where it began.
func TestPlaceWithinSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1", "b": "1"})
		h := w.run(t, lasting)
		s := h.Subscribe(anything)
		synctest.Wait()
		if item, _, _ := s.Take(); item.Revision != 0 {
			t.Errorf("within the snapshot the reader is at %d", item.Revision)
		}
		_, at := heard(t, s)
		s.Close()
		w.change(h, "a", "2")
		w.change(h, "b", "2")
		s = h.Resume(anything, at)
		pass()
		if item, _, _ := s.Take(); item.Revision != at || item.Value != "2" {
			t.Errorf("within changes since %d: %+v", at, item)
		}
		s.Close()
	})
}

// TestPlaceWhileOthersWait: a key that changes again while it waits keeps its place,
// ahead of an older change, which is not yet told of then.
func TestPlaceWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1", "b": "1"})
		h := w.run(t, lasting)
		s := h.Subscribe(anything)
		heard(t, s)
		w.change(h, "a", "2")
		w.change(h, "b", "2")
		w.change(h, "a", "3")
		item, _, _ := s.Take()
		if item.Value != "3" {
			t.Fatalf("told %+v", item)
		}
		s.Close()
		s = h.Resume(anything, item.Revision)
		defer s.Close()
		words, _ := heard(t, s)
		if !slices.Contains(words, "b=2") || words[len(words)-1] != "resumed" {
			t.Errorf("read %v", words)
		}
	})
}

// TestLinger: what nobody reads is looked at for as long as somebody may come back.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "1"})
		h := w.run(t, lasting)
		h.Subscribe(anything).Close()
		pass()
		before := w.lookedAt("a")
		w.change(h, "a", "2")
		if w.lookedAt("a") != before+1 {
			t.Error("a change is not seen right after the reader left")
		}
		time.Sleep(time.Minute)
		before = w.lookedAt("a")
		w.change(h, "a", "3")
		time.Sleep(5 * broadcast.ResyncInterval)
		if n := w.lookedAt("a") - before; n != 0 {
			t.Errorf("looked %d times long after", n)
		}
	})
}

// follower is a reader that breaks off now and then and resumes where it was.
type follower struct {
	t     *testing.T
	hub   *hub
	sub   *reader
	at    broadcast.Revision
	known map[string]string
	shown map[string]string // by the snapshot under way; nil: it is whole
}

func (f *follower) open() {
	f.sub, f.shown = f.hub.Resume(anything, f.at), map[string]string{}
}

// take reads one item; not ok when there is none.
func (f *follower) take() bool {
	item, ok, err := f.sub.Take()
	if err != nil {
		f.t.Error(err)
	}
	if !ok {
		return false
	}
	f.at = item.Revision
	switch {
	case item.End:
		if !item.Resumed {
			f.known = f.shown
		} else {
			maps.Copy(f.known, f.shown)
		}
		f.shown = nil
	case f.shown != nil:
		f.shown[item.Key] = item.Value
		if f.at > 0 { // it resumes from there if this breaks off
			f.known[item.Key] = item.Value
		}
	default:
		if item.Value <= f.known[item.Key] {
			f.t.Errorf("%s=%s after %s", item.Key, item.Value, f.known[item.Key])
		}
		f.known[item.Key] = item.Value
	}
	return true
}

// TestResumesAgree: readers that break off and resume at random, while everything
// changes and goes, know in the end exactly what is there and what ended.
func TestResumesAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{})
		h := w.run(t, lasting, func(c *broadcast.Config[string, string]) { c.Look = w.lookToTheEnd })
		ctx, stop := context.WithCancel(t.Context())
		var writing, reading sync.WaitGroup
		for n := range 4 {
			writing.Go(func() { w.churn(h, n) })
		}
		var followers []*follower
		for n := range 4 {
			f := &follower{t: t, hub: h, known: map[string]string{}}
			f.open()
			followers = append(followers, f)
			reading.Go(func() { f.dawdle(ctx, rand.New(rand.NewPCG(uint64(n), 1))) })
		}
		writing.Wait()
		stop()
		reading.Wait()
		for n, f := range followers {
			f.sub.Close()
			f.open()
			time.Sleep(2 * time.Second)
			for f.take() {
			}
			f.sub.Close()
			w.mu.Lock()
			for key, value := range w.values {
				if f.known[key] != value {
					t.Errorf("reader %d knows %s=%s, there is %s", n, key, f.known[key], value)
				}
			}
			for key, value := range f.known {
				if _, there := w.values[key]; !there && !strings.HasSuffix(value, "deleted") {
					t.Errorf("reader %d knows %s=%s, which is gone", n, key, value)
				}
			}
			w.mu.Unlock()
		}
	})
}

// lookToTheEnd has a last word on what is gone, as instances have.
func (w *world) lookToTheEnd(key, last string, known bool) (string, bool) {
	v, ok := w.look(key, last, known)
	if !ok && known && !strings.HasSuffix(last, "deleted") {
		return last + " deleted", true
	}
	return v, ok
}

// churn changes one writer's keys, ends them, and has them go.
func (w *world) churn(h *hub, writer int) {
	random := rand.New(rand.NewPCG(uint64(writer), 0))
	for version := range 2000 {
		key := fmt.Sprintf("%d-%d", writer, random.IntN(10))
		switch random.IntN(6) {
		case 0:
			w.set(key, fmt.Sprintf("%06d deleted", version))
		case 1:
			w.remove(key)
		default:
			w.set(key, fmt.Sprintf("%06d", version))
		}
		h.Mark(key)
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
	}
}

func (f *follower) dawdle(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		switch random.IntN(20) {
		case 0:
			f.sub.Close()
			f.open()
		case 1:
			time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
		default:
			if !f.take() {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}
