package election

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seedFlag      = flag.Int64("seed", -1, "replay this one history and print its timeline")
	historiesFlag = flag.Int("histories", 10_000, "how many seeded histories to run")
	firstFlag     = flag.Uint64("first", 0, "the first of the seeds")
)

// play runs one history: a period of faults, then calm until a server acts.
func play(seed uint64, spoil mutation, trace *strings.Builder) (*world, error) {
	w := newWorld(seed, spoil)
	w.trace = trace
	w.after(w.upTo(3*time.Second), w.mishap)
	w.run(faultsLast)
	w.calm = true
	w.store.down, w.store.slow = 0, 0
	for _, h := range w.hosts {
		h.storeCut, h.peersCut, h.refuses = 0, 0, 0
	}
	for end := w.now + leaderWithin; w.broken == nil && !w.judge.calmed && w.now < end; {
		w.run(w.now + time.Second)
	}
	if w.broken == nil && !w.judge.calmed {
		w.fail("no server acts within %s of the end of faults", leaderWithin)
		w.unsafe = false
	}
	return w, w.broken
}

// TestHistories searches for two leaders. A failing seed is replayed with
//
//	go test ./pkg/server/election -run TestHistories -seed N
func TestHistories(t *testing.T) {
	if *seedFlag >= 0 {
		var trace strings.Builder
		_, err := play(uint64(*seedFlag), mutation{}, &trace)
		fmt.Print(trace.String())
		if err != nil {
			t.Error(err)
		}
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // small, short-lived worlds
	var acts, terms, writes atomic.Int64
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for n := next.Add(1); n <= uint64(*historiesFlag) && !t.Failed(); n = next.Add(1) {
				seed := *firstFlag + n - 1
				w, err := play(seed, mutation{}, nil)
				if err != nil {
					var trace strings.Builder
					_, _ = play(seed, mutation{}, &trace)
					t.Errorf("seed %d: %v\n%s", seed, err, trace.String())
				}
				acts.Add(int64(w.judge.acts))
				terms.Add(int64(len(w.judge.terms)))
				writes.Add(int64(w.store.writes))
			}
		})
	}
	wg.Wait()
	t.Logf("%d histories: %d acts in %d terms, %d writes of the record", *historiesFlag, acts.Load(), terms.Load(), writes.Load())
}
