package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// times returns the times of an instance for which the test below sets all.
func times(i fleet.Instance) map[string]time.Time {
	return map[string]time.Time{
		"created_at": i.CreatedAt, "registered_at": *i.RegisteredAt, "removal_asked_at": *i.RemovalAskedAt, "deleted_at": *i.DeletedAt,
		"create_attempted_at": *i.Provider.CreateAttemptedAt, "acked_at": *i.Drain.AckedAt, "delete_at": i.Drain.DeleteAt,
	}
}

// timed stores a record with all of its times at a moment, and its drain's deadline a minute later.
func timed(t *testing.T, w *ledger.Writer, at time.Time) fleet.Instance {
	t.Helper()
	i := pending(1)
	i.CreatedAt = at
	if _, err := w.Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	stored, err := w.Update(t.Context(), i.ID, func(i *fleet.Instance) error {
		i.RegisteredAt, i.RemovalAskedAt, i.DeletedAt, i.Provider.CreateAttemptedAt = &at, &at, &at, &at
		i.Drain = &fleet.Drain{DeleteAt: at.Add(time.Minute), AckedAt: &at}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// TestTimesInTheFuture: times after a record was read count as that moment, for good; the deadline of
// its drain stays.
func TestTimesInTheFuture(t *testing.T) {
	store, now := mem.New(mem.Config{HashETags: true}), time.Now().UTC()
	cfg := config(t, store)
	cfg.Now = func() time.Time { return now }
	ahead := now.Add(14 * time.Minute)
	timed(t, open(t, cfg).Lead(term{epoch: 2}), ahead)
	cfg.CachePath, cfg.Writer = "", "server-2"
	l := open(t, cfg)
	if _, err := l.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	w := l.Lead(term{epoch: 3})
	if _, err := w.Update(t.Context(), newID(1), func(i *fleet.Instance) error { i.Hostname = "h"; return nil }); err != nil {
		t.Fatal(err)
	}
	i, _ := l.Get(newID(1))
	for name, at := range times(i) {
		want := now.Add(-time.Hour)
		if name == "delete_at" {
			want = ahead.Add(time.Minute)
		}
		if !at.Equal(want) {
			t.Errorf("%s is %s, want %s", name, at, want)
		}
	}
}

// TestTimesAreMeasured: what a ledger holds is measured by the monotonic clock, whether this process
// wrote it, read it, or found it in its cache.
func TestTimesAreMeasured(t *testing.T) {
	store := mem.New(mem.Config{HashETags: true})
	cfg := config(t, store)
	first := open(t, cfg)
	written := timed(t, first.Lead(term{epoch: 2}), time.Now().UTC())
	if err := first.Close(); err != nil { // which writes the cache
		t.Fatal(err)
	}
	judge := func(how string, i fleet.Instance) {
		for name, at := range times(i) {
			if measured := at != at.Round(0); !measured {
				t.Errorf("%s: %s has no reading of the monotonic clock", how, name)
			}
		}
	}
	judge("written", written)
	cfg.Writer = "server-2"
	for _, reads := range []int{0, 1} {
		l := open(t, cfg)
		stats, err := l.Load(t.Context())
		if err != nil || stats.Read != reads {
			t.Fatalf("%d were read, want %d: %v", stats.Read, reads, err)
		}
		i, _ := l.Get(newID(1))
		judge(fmt.Sprintf("loaded by %d reads", reads), i)
		cfg.CachePath = ""
	}
}
