package election_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/election"
)

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// TestWarningsAreFew: an outage of 25 seconds is logged, but not with each attempt.
func TestWarningsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objecttest.NewFaults(mem.New(mem.Config{}), nil)
		log := &lines{}
		e, err := election.New(election.Config{
			Store: store, Key: key, Holder: "a", Timing: defaults, Logger: slog.New(slog.NewTextHandler(log, nil)),
			FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = e.Run(ctx, func(ctx context.Context, _ *election.Term) error { <-ctx.Done(); return nil })
		}()
		time.Sleep(5 * time.Second)
		store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		time.Sleep(25 * time.Second)
		store.Set(nil)
		stop()
		soon(t, done, "the end of the elector")
		if n := strings.Count(log.b.String(), "level=WARN"); n < 1 || n > 5 {
			t.Errorf("%d warnings in 25 seconds:\n%s", n, log.b.String())
		}
	})
}
