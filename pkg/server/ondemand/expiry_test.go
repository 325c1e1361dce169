package ondemand_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/ondemand"
	"github.com/nstance/nstance/pkg/server/writes"
)

// holds is a fence that always holds.
type holds struct{}

func (holds) Epoch() uint64                                                    { return 1 }
func (holds) RiseAbove(uint64)                                                 {}
func (holds) Act(ctx context.Context, write func(context.Context) error) error { return write(ctx) }

// TestAsManyRequestsGoAsCome: 8,000 on-demand instances an hour, of which every second one failed, as
// of a pool of short jobs, keep no more requests than those of the retention and the two hours after it,
// although every hundredth request to the store fails, and some objects are never let go. Two deletes of one
// request, of which the first may land late, are at least an interval apart.
func TestAsManyRequestsGoAsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perHour, retention, hours = 8000, time.Hour, 8
		store, faults := expiring(t, retention)
		faults.Set(failing(t))
		for n := range perHour * hours {
			// A request that no record followed is closed first, as that of one that failed.
			putRequest(t, store, n, n%2 == 0)
			time.Sleep(time.Hour/perHour - 5*time.Millisecond)
		}
		left, err := object.All(t.Context(), store, "request/")
		if most := 4 * perHour; err != nil || len(left) > most {
			t.Errorf("%d requests are left, want at most %d; %v", len(left), most, err)
		}
	})
}

// TestWhatASweepLeavesIsNotForgotten: requests that a sweep has closed, and which the next one does not come to in
// an outage, are deleted by the one after that. The few that it tried wait until they are old again.
func TestWhatASweepLeavesIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, faults := expiring(t, 24*time.Hour)
		time.Sleep(30 * time.Minute)
		for n := range 20 {
			putRequest(t, store, n, false)
		}
		// The sweep after 25 hours closes them, and the one after 26 fails to delete them.
		time.Sleep(25 * time.Hour)
		faults.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		for _, left := range []int{20, 5} {
			time.Sleep(time.Hour)
			if is, err := object.All(t.Context(), store, "request/"); err != nil || len(is) != left {
				t.Errorf("%d requests are left, want %d: %v", len(is), left, err)
			}
			faults.Set(nil)
		}
		time.Sleep(24 * time.Hour)
		if is, err := object.All(t.Context(), store, "request/"); err != nil || len(is) > 0 {
			t.Errorf("%d requests are left: %v", len(is), err)
		}
	})
}

// expiring runs the expiry of a term until the test ends.
func expiring(t *testing.T, retention time.Duration) (*mem.Store, *objecttest.Faults) {
	t.Helper()
	store := mem.New(mem.Config{Latency: 5 * time.Millisecond})
	faults := objecttest.NewFaults(store, nil)
	l, err := ledger.Open(ledger.Config{Store: faults, Shard: "dev-1", Writer: "w", Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	w := l.Lead(holds{})
	records := writes.Records{Ledger: l, Writer: w, Writes: writes.New(ctx, func() time.Duration { return time.Minute })}
	e := ondemand.NewExpiry(records, func() time.Duration { return retention }, time.Now, slog.New(slog.DiscardHandler))
	over := make(chan struct{})
	go func() { defer close(over); e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-over
		l.Close()
	})
	return store, faults
}

// putRequest writes the request of an instance without a record.
func putRequest(t *testing.T, store *mem.Store, n int, gone bool) {
	t.Helper()
	id, err := fleet.NewID("knd", time.Now(), counter(n))
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"tenant":"default","key":"k%d","id":%q,"group":"web","rev":1,"gone":%t}`, n, id, gone)
	if _, err := store.Put(t.Context(), fmt.Sprintf("request/dev-1/default.k%d.json", n), []byte(body), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
}

// failing has every hundredth request fail, and refuses all for a few objects.
func failing(t *testing.T) func(objecttest.Request) objecttest.Outcome {
	t.Helper()
	n, deletes := 0, map[string]time.Time{}
	return func(r objecttest.Request) objecttest.Outcome {
		if last, again := deletes[r.Key]; again && r.Verb == object.VerbDelete && time.Since(last) < ledger.ExpireInterval {
			t.Errorf("%s is deleted twice within %v", r.Key, time.Since(last))
		}
		if r.Verb == object.VerbDelete {
			deletes[r.Key] = time.Now()
		}
		switch n++; {
		case strings.HasSuffix(r.Key, "000.json"):
			return objecttest.Outcome{Fault: objecttest.Refused}
		case n%100 == 0 && r.Verb != object.VerbList:
			return objecttest.Outcome{Fault: objecttest.Dropped}
		default:
			return objecttest.Outcome{}
		}
	}
}

// counter yields the same bytes for each number.
type counter int

func (c counter) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(int(c) >> (8 * (i % 4)))
	}
	return len(p), nil
}
