// A hybrid key exchange costs more than the rest of a handshake, and no test here depends
// on it.
//go:debug tlsmlkem=0

package shardtest_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/shardtest"
)

var (
	simSeeds  = flag.Int("sim.seeds", 40, "how many `seeds` to simulate")
	simFirst  = flag.Uint64("sim.first", 1, "the first `seed`")
	simSeed   = flag.Uint64("sim.seed", 0, "simulate this `seed` alone, and print its timeline")
	simLength = flag.Duration("sim.length", 10*time.Minute, "how long faults happen in each seed's history")
	simLogs   = flag.Bool("sim.logs", false, "with -sim.seed: print all logs of servers and agents")
	simFigure = flag.Bool("sim.figure", false, "print the simulation's speed as a line of JSON")
)

// The limits of a run: the real time of one seed, to detect hangs, and the number of printed
// failures.
const (
	hung     = 15 * time.Minute
	failures = 3
)

// progress is the interval at which a long run prints its progress.
const progress = 30 * time.Second

// simulate runs one seed in its own bubble.
func simulate(t *testing.T, seed uint64, dir string, logs bool) (out shardtest.Outcome) {
	watchdog := time.AfterFunc(hung, func() { panic(fmt.Sprintf("seed %d takes longer than %s: %s", seed, hung, replay(seed))) })
	defer watchdog.Stop()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if out, err = shardtest.Simulate(seed, *simLength, shardtest.Options{Dir: dir, Logs: logs}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	})
	return out
}

func replay(seed uint64) string {
	text := fmt.Sprintf("make sim SEED=%d", seed)
	if length := flag.Lookup("sim.length"); length.Value.String() != length.DefValue {
		text += " LENGTH=" + length.Value.String()
	}
	if shardtest.MovesClock() {
		text += " CLOCK=1"
	}
	return text
}

// run is the state that the workers share.
type run struct {
	mu     sync.Mutex
	next   uint64
	left   int
	failed int
	done   int
	lasted time.Duration

	began, said time.Time
}

func (r *run) take() (seed uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 || r.failed >= failures {
		return 0, false
	}
	r.left--
	r.next++
	return r.next - 1, true
}

func (r *run) finish(t *testing.T, seed uint64, out shardtest.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	r.lasted += out.Lasted
	if len(out.Problems) > 0 {
		r.failed++
		t.Errorf("seed %d:\n%s\n\n%s\nreplay: %s", seed, strings.Join(out.Problems, "\n"), out.Timeline, replay(seed))
	}
	if now := time.Now(); *simFigure && (len(out.Problems) > 0 || now.Sub(r.said) > progress) {
		r.said = now
		fmt.Fprintf(os.Stderr, "seed %d: %d done, %d to go, %d failed, %.0f simulated hours a minute\n",
			seed, r.done, r.left, r.failed, r.perMinute(now))
	}
}

// perMinute returns how many hours were simulated per minute.
func (r *run) perMinute(now time.Time) float64 { return r.lasted.Hours() / now.Sub(r.began).Minutes() }

func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		out := simulate(t, *simSeed, shmDir(t), *simLogs)
		fmt.Print(out.Timeline)
		for _, p := range out.Problems {
			t.Error(p)
		}
		return
	}
	began := time.Now()
	r := &run{next: *simFirst, left: *simSeeds, began: began, said: began}
	t.Run("seeds", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("worker ", n), func(t *testing.T) {
				t.Parallel()
				dir := shmDir(t)
				for seed, ok := r.take(); ok; seed, ok = r.take() {
					r.finish(t, seed, simulate(t, seed, dir, false))
				}
			})
		}
	})
	end := time.Now()
	t.Logf("%d seeds: %s of a shard's life in %s", r.done, r.lasted.Round(time.Second), end.Sub(began).Round(time.Millisecond))
	if *simFigure {
		figure(t, r.perMinute(end), r.done)
	}
}

func figure(t *testing.T, value float64, n int) {
	t.Helper()
	line, err := json.Marshal(struct {
		Name   string  `json:"name"`
		Value  float64 `json:"value"`
		Unit   string  `json:"unit"`
		N      int     `json:"n"`
		Target float64 `json:"target"`
	}{"simulated_shard_hours_per_minute", float64(int(value*10)) / 10, "h/min", n, 1000})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stdout, "%s\n", line)
}
