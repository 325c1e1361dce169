package ondemand_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
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
// of a pool of short jobs, keep no more requests than those of the retention and the two hours after it.
func TestAsManyRequestsGoAsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perHour, retention, hours = 8000, time.Hour, 8
		store := mem.New(mem.Config{Latency: 5 * time.Millisecond})
		l, err := ledger.Open(ledger.Config{Store: store, Shard: "dev-1", Writer: "w", Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, stop := context.WithCancel(t.Context())
		w := l.Lead(holds{})
		records := writes.Records{Ledger: l, Writer: w, Writes: writes.New(ctx, func() time.Duration { return time.Minute })}
		e := ondemand.NewExpiry(records, func() time.Duration { return retention }, time.Now, slog.New(slog.DiscardHandler))
		over := make(chan struct{})
		go func() { defer close(over); e.Run(ctx) }()
		for n := range perHour * hours {
			id, err := fleet.NewID("knd", time.Now(), counter(n))
			if err != nil {
				t.Fatal(err)
			}
			// A request that no record followed is closed first, as that of one that failed.
			body := fmt.Sprintf(`{"tenant":"default","key":"k%d","id":%q,"group":"web","rev":1,"gone":%t}`, n, id, n%2 == 0)
			if _, err := store.Put(ctx, fmt.Sprintf("request/dev-1/default.k%d.json", n), []byte(body), object.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour/perHour - 5*time.Millisecond)
		}
		left, err := object.All(t.Context(), store, "request/")
		if most := 4 * perHour; err != nil || len(left) > most {
			t.Errorf("%d requests are left, want at most %d; %v", len(left), most, err)
		}
		stop()
		<-over
	})
}

// counter yields the same bytes for each number.
type counter int

func (c counter) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(int(c) >> (8 * (i % 4)))
	}
	return len(p), nil
}
