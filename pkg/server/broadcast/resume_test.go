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

// lasting returns a hub that can be resumed, with final values: its keys are removed silently,
// like those of instances.
func lasting(c *broadcast.Config[string, string]) {
	c.TellGone, c.Linger = false, time.Minute
	c.Last = func(v string) bool { return strings.HasSuffix(v, "deleted") }
}

// heard returns the items available to a reader, and its revision.
func heard(t *testing.T, s *reader) (words []string, at broadcast.Revision) {
	t.Helper()
	pass()
	for {
		item, ok, err := s.Next()
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

// change makes a change and lets the hub read it.
func (f *fixture) change(h *hub, key, value string) {
	f.set(key, value)
	h.Mark(key)
	pass()
}

// TestResume: a reader that returns in time receives only what has changed since, including
// final values of keys that were removed.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1", "b": "1", "c": "1"})
		h := f.run(t, lasting, func(c *broadcast.Config[string, string]) {
			c.Initial = func(v string) bool { return v != "deleted" }
		})
		s := h.Subscribe(anything)
		words, at := heard(t, s)
		same(t, words, "a=1", "b=1", "c=1", "end")
		s.Close()
		f.change(h, "b", "2")
		f.change(h, "c", "deleted")
		f.change(h, "d", "1")
		s = h.Resume(anything, at)
		words, at = heard(t, s)
		same(t, words, "b=2", "c=deleted", "d=1", "resumed")
		f.change(h, "b", "3")
		f.change(h, "b", "2")
		f.change(h, "a", "1")
		words, _ = heard(t, s)
		same(t, words) // back at the known value
		f.change(h, "e", "1")
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
		same(t, words, "b=2", "e=1", "resumed") // this reader missed that b returned to its value
		s.Close()
	})
}

// TestNotResumed: everything is sent if a change may have been missed.
func TestNotResumed(t *testing.T) {
	for name, c := range map[string]struct {
		between func(f *fixture, h *hub)
		from    broadcast.Revision // added to the reader's revision
		want    string
	}{
		"nothing happened":   {func(*fixture, *hub) {}, 0, "resumed"},
		"a revision to come": {func(*fixture, *hub) {}, 1, "a=1 b=1 end"},
		"too long away":      {func(*fixture, *hub) { time.Sleep(61 * time.Second) }, 0, "a=1 b=1 end"},
		"not too long":       {func(*fixture, *hub) { time.Sleep(59 * time.Second) }, 0, "resumed"},
		"an end that was not told": {func(f *fixture, h *hub) {
			f.change(h, "b", "deleted")
			f.remove("b")
			h.Mark("b")
			pass()
		}, 0, "a=1 end"},
		"gone without a last word": {func(f *fixture, h *hub) {
			f.remove("b")
			h.Mark("b")
			pass()
		}, 0, "a=1 end"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(map[string]string{"a": "1", "b": "1"})
				h := f.run(t, lasting)
				s := h.Subscribe(anything)
				_, at := heard(t, s)
				s.Close()
				c.between(f, h)
				s = h.Resume(anything, at+c.from)
				defer s.Close()
				words, _ := heard(t, s)
				same(t, words, strings.Fields(c.want)...)
			})
		})
	}
}

// TestToldEnd: a key whose final value was sent may be dropped.
func TestToldEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1", "b": "1"})
		h := f.run(t, lasting)
		s := h.Subscribe(anything)
		heard(t, s)
		f.change(h, "b", "deleted")
		words, at := heard(t, s)
		same(t, words, "b=deleted")
		s.Close()
		f.remove("b")
		h.Mark("b")
		pass()
		s = h.Resume(anything, at)
		defer s.Close()
		words, _ = heard(t, s)
		same(t, words, "resumed")
	})
}

// TestPlaceWithinSnapshot: an interrupted full snapshot can't be resumed; one of changes can,
// from where it began.
func TestPlaceWithinSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1", "b": "1"})
		h := f.run(t, lasting)
		s := h.Subscribe(anything)
		synctest.Wait()
		if item, _, _ := s.Next(); item.Revision != 0 {
			t.Errorf("within the snapshot the reader is at %d", item.Revision)
		}
		_, at := heard(t, s)
		s.Close()
		f.change(h, "a", "2")
		f.change(h, "b", "2")
		s = h.Resume(anything, at)
		pass()
		if item, _, _ := s.Next(); item.Revision != at || item.Value != "2" {
			t.Errorf("within changes since %d: %+v", at, item)
		}
		s.Close()
	})
}

// TestPlaceWhileOthersWait: a queued key that changes again keeps its position, ahead of an
// older change, which has not been sent then.
func TestPlaceWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1", "b": "1"})
		h := f.run(t, lasting)
		s := h.Subscribe(anything)
		heard(t, s)
		f.change(h, "a", "2")
		f.change(h, "b", "2")
		f.change(h, "a", "3")
		item, _, _ := s.Next()
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

// TestLinger: without readers, keys are read for as long as a reader may resume.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{"a": "1"})
		h := f.run(t, lasting)
		h.Subscribe(anything).Close()
		pass()
		before := f.lookedAt("a")
		f.change(h, "a", "2")
		if f.lookedAt("a") != before+1 {
			t.Error("a change is not seen right after the reader left")
		}
		time.Sleep(time.Minute)
		before = f.lookedAt("a")
		f.change(h, "a", "3")
		time.Sleep(5 * broadcast.ResyncInterval)
		if n := f.lookedAt("a") - before; n != 0 {
			t.Errorf("looked %d times long after", n)
		}
	})
}

// follower is a reader that disconnects now and then and resumes.
type follower struct {
	t     *testing.T
	hub   *hub
	sub   *reader
	at    broadcast.Revision
	known map[string]string
	shown map[string]string // by the snapshot in progress; nil: it has ended
}

func (f *follower) open() {
	f.sub, f.shown = f.hub.Resume(anything, f.at), map[string]string{}
}

// take reads one item; false if there is none.
func (f *follower) take() bool {
	item, ok, err := f.sub.Next()
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
		if f.at > 0 { // it resumes from there if interrupted
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

// TestResumesAgree: readers that disconnect and resume at random, while everything changes and
// is removed, end up with exactly the current and the final values.
func TestResumesAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(map[string]string{})
		h := f.run(t, lasting, func(c *broadcast.Config[string, string]) { c.Look = f.lookToTheEnd })
		ctx, stop := context.WithCancel(t.Context())
		var writing, reading sync.WaitGroup
		for n := range 4 {
			writing.Go(func() { f.churn(h, n) })
		}
		var followers []*follower
		for n := range 4 {
			one := &follower{t: t, hub: h, known: map[string]string{}}
			one.open()
			followers = append(followers, one)
			reading.Go(func() { one.dawdle(ctx, rand.New(rand.NewPCG(uint64(n), 1))) })
		}
		writing.Wait()
		stop()
		reading.Wait()
		for n, one := range followers {
			one.sub.Close()
			one.open()
			time.Sleep(2 * time.Second)
			for one.take() {
			}
			one.sub.Close()
			f.mu.Lock()
			for key, value := range f.values {
				if one.known[key] != value {
					t.Errorf("reader %d knows %s=%s, there is %s", n, key, one.known[key], value)
				}
			}
			for key, value := range one.known {
				if _, there := f.values[key]; !there && !strings.HasSuffix(value, "deleted") {
					t.Errorf("reader %d knows %s=%s, which is gone", n, key, value)
				}
			}
			f.mu.Unlock()
		}
	})
}

// lookToTheEnd returns a final value for removed keys, like instances.
func (f *fixture) lookToTheEnd(key, last string, known bool) (string, bool) {
	v, ok := f.look(key, last, known)
	if !ok && known && !strings.HasSuffix(last, "deleted") {
		return last + " deleted", true
	}
	return v, ok
}

// churn changes one writer's keys, finishes them, and removes them.
func (f *fixture) churn(h *hub, writer int) {
	random := rand.New(rand.NewPCG(uint64(writer), 0))
	for version := range 2000 {
		key := fmt.Sprintf("%d-%d", writer, random.IntN(10))
		switch random.IntN(6) {
		case 0:
			f.set(key, fmt.Sprintf("%06d deleted", version))
		case 1:
			f.remove(key)
		default:
			f.set(key, fmt.Sprintf("%06d", version))
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
