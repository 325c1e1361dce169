package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/history"
)

// TestTakeover: the next leader knows the events, the last ones of a hand-over included, and its
// own come after them.
func TestTakeover(t *testing.T) {
	simulated(t, func(f *fixture) {
		a := f.lead(7)
		a.happened("one")
		time.Sleep(history.Settle + time.Second)
		a.happened("two")
		a.end()
		b := f.lead(8)
		b.happened("three") // before it has read the others
		if !b.Complete(f.Context()) {
			f.Error("the events of earlier terms are not read")
		}
		f.want(b, "7.1 one", "7.2 two", "8.1 three")
		b.end()
		c := f.lead(9)
		c.Complete(f.Context())
		f.want(c, "7.1 one", "7.2 two", "8.1 three")
	})
}

// TestCrash: what happened more than the settling time before a crash is known, however long the
// last write was ago.
func TestCrash(t *testing.T) {
	simulated(t, func(f *fixture) {
		a := f.lead(1)
		time.Sleep(time.Hour)
		a.happened("one")
		time.Sleep(history.Settle + time.Second)
		b := f.lead(2)
		b.Complete(f.Context())
		f.want(b, "1.1 one")
	})
}

// TestRequests: a leader without new events makes one request, and one that has many makes one a
// minute.
func TestRequests(t *testing.T) {
	simulated(t, func(f *fixture) {
		a := f.lead(1)
		time.Sleep(24 * time.Hour)
		if got := f.counts.Counts(); got.Total() != 1 {
			f.Errorf("an idle leader made %+v", got)
		}
		for n := range 3600 {
			a.happened(fmt.Sprint("r", n))
			time.Sleep(time.Second)
		}
		if got := f.counts.Counts(); got.Put < 50 || got.Put > 60 || got.Get != 1 {
			f.Errorf("in a busy hour a leader made %+v", got)
		}
	})
}

// TestFormerLeader: a leader that does not know yet that there is a later one overwrites nothing.
func TestFormerLeader(t *testing.T) {
	simulated(t, func(f *fixture) {
		old := f.lead(1)
		old.happened("one")
		time.Sleep(10 * time.Second)
		later := f.lead(2)
		later.happened("two")
		time.Sleep(10 * time.Second)
		old.happened("late")
		time.Sleep(5 * time.Minute)
		later.happened("three")
		time.Sleep(5 * time.Minute)
		if o := f.object(); o.Epoch != 2 || len(o.Events) != 3 {
			f.Errorf("stored: %+v", o)
		}
		before := f.counts.Counts()
		old.happened("later")
		time.Sleep(time.Hour)
		old.end()
		if after := f.counts.Counts().Sub(before); after.Total() != 0 {
			f.Errorf("the former leader still makes requests: %+v", after)
		}
		c := f.lead(4)
		c.Complete(f.Context())
		f.want(c, "1.1 one", "2.1 two", "2.2 three")
	})
}

// TestNotPermitted: a term that may not act writes no events, and writes them once it may again.
func TestNotPermitted(t *testing.T) {
	simulated(t, func(f *fixture) {
		a := f.lead(1)
		a.Complete(f.Context())
		f.denied.Store(true)
		before := f.counts.Counts()
		a.happened("one")
		time.Sleep(10 * time.Minute)
		if made := f.counts.Counts().Sub(before); made.Put != 0 {
			f.Errorf("without permission: %+v", made)
		}
		f.denied.Store(false)
		time.Sleep(2 * time.Minute)
		if o := f.object(); len(o.Events) != 1 {
			f.Errorf("stored: %+v", o)
		}
	})
}

// TestLateWrite: what the former leader wrote after the next one had read is kept.
func TestLateWrite(t *testing.T) {
	simulated(t, func(f *fixture) {
		old := f.lead(1)
		old.Complete(f.Context())
		later := f.lead(2)
		later.Complete(f.Context())
		reader := later.Follow(fleet.EventID{}, every, 10)
		defer reader.Close()
		old.happened("late")
		old.end()
		later.happened("new")
		time.Sleep(time.Minute)
		f.want(later, "1.1 late", "2.1 new")
		if o := f.object(); o.Epoch != 2 || len(o.Events) != 2 {
			f.Errorf("stored: %+v", o)
		}
		var told []string
		for {
			e, ok, err := reader.Next()
			if err != nil || !ok {
				break
			}
			if e != nil {
				told = append(told, e.Reason)
			}
		}
		if strings.Join(told, " ") != "new late" {
			f.Errorf("a follower is told %q", told)
		}
	})
}

// TestStorageAway: events are kept while the store does not answer, and written then.
func TestStorageAway(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"dropped": objecttest.Dropped, "reply lost": objecttest.ReplyLost} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(f *fixture) {
				a := f.lead(1)
				a.happened("zero")
				time.Sleep(10 * time.Second)
				f.faults.Set(objecttest.Always(objecttest.Outcome{Fault: fault}))
				b := f.lead(2)
				b.happened("one")
				if b.Complete(f.Context()) {
					f.Error("the events of earlier terms are said to be read")
				}
				f.want(b, "2.1 one")
				time.Sleep(10 * time.Minute)
				f.faults.Set(nil)
				time.Sleep(5 * time.Minute)
				f.want(b, "1.1 zero", "2.1 one")
				f.faults.Set(objecttest.Always(objecttest.Outcome{Fault: fault}))
				b.happened("two")
				time.Sleep(10 * time.Minute)
				f.faults.Set(nil)
				time.Sleep(5 * time.Minute)
				if o := f.object(); len(o.Events) != 3 || o.Epoch != 2 {
					f.Errorf("stored: %+v", o)
				}
			})
		})
	}
}

// TestDamaged: a damaged object is as good as none.
func TestDamaged(t *testing.T) {
	for _, body := range []string{"", "no", "[]", `{"epoch":99999,"events":[]}`, `{"events":[{"id":"x"}]}`, `{"events":[{}]}`} {
		t.Run(body, func(t *testing.T) {
			simulated(t, func(f *fixture) {
				f.put(body)
				a := f.lead(1)
				a.happened("one")
				time.Sleep(time.Minute)
				f.want(a, "1.1 one")
				if o := f.object(); o.Epoch != 1 || len(o.Events) != 1 {
					f.Errorf("stored: %+v", o)
				}
			})
		})
	}
}

// TestDeleted: an object that was deleted is written again, with all events.
func TestDeleted(t *testing.T) {
	simulated(t, func(f *fixture) {
		a := f.lead(1)
		a.happened("one")
		time.Sleep(time.Minute)
		if err := f.inner.Delete(f.Context(), key); err != nil {
			f.Fatal(err)
		}
		a.happened("two")
		time.Sleep(2 * time.Minute)
		if o := f.object(); len(o.Events) != 2 || o.Rev < 2 {
			f.Errorf("stored: %+v", o)
		}
	})
}

// TestNewerVersion: fields that this version does not know are no damage.
func TestNewerVersion(t *testing.T) {
	simulated(t, func(f *fixture) {
		f.put(`{"epoch":1,"rev":1,"writer":"w","more":1,
			"events":[{"id":"1.1","at":"2026-01-01T00:00:00Z","kind":"new","reason":"r","more":[1]}]}`)
		a := f.lead(2)
		a.Complete(f.Context())
		f.want(a, "1.1 r")
	})
}

// FuzzStored: whatever the object is, the leader's own events follow those of earlier leaders.
func FuzzStored(f *testing.F) {
	f.Add([]byte(`{"epoch":1,"rev":1,"writer":"w","events":[{"id":"1.1","at":"2026-01-01T00:00:00Z","kind":"drain","reason":"r"}]}`))
	f.Add([]byte(`{"epoch":9,"events":[{"id":"9.1","kind":"drain"},{"id":"1.1","kind":"drain"},{"id":"1.1","kind":"drain"}]}`))
	f.Add([]byte(`{"epoch":1,"events":null}`))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		b := &fixture{T: t, inner: mem.New(mem.Config{HashETags: true})}
		b.faults = objecttest.NewFaults(b.inner, nil)
		b.counts = objecttest.NewCounting(b.faults)
		b.put(string(body))
		a := b.lead(5)
		a.Complete(t.Context())
		a.happened("own")
		all := a.Events(fleet.EventID{}, every)
		for n, e := range all {
			if n > 0 && all[n-1].ID.Compare(e.ID) >= 0 || e.ID.Number == 0 || e.Kind == "" || n < len(all)-1 && e.ID.Epoch >= 5 {
				t.Errorf("event %d is %+v", n, e)
			}
		}
		if last := all[len(all)-1]; last.ID != (fleet.EventID{Epoch: 5, Number: 1}) {
			t.Errorf("the last one is %+v", last)
		}
	})
}
