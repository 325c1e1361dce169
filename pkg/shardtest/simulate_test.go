package shardtest_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/shardtest"
)

func simulate(t *testing.T, seed uint64, length time.Duration, logs bool) (out shardtest.Outcome) {
	t.Helper()
	dir := shmDir(t)
	synctest.Test(t, func(t *testing.T) {
		var err error
		if out, err = shardtest.Simulate(seed, length, shardtest.Options{Dir: dir, Logs: logs}); err != nil {
			t.Error(err)
		}
	})
	return out
}

var first = flag.Uint64("x.first", 1, "")
var count = flag.Int("x.count", 1, "")
var logsFlag = flag.Bool("x.logs", false, "")

func TestX(t *testing.T) {
	for s := *first; s < *first+uint64(*count); s++ {
		began := time.Now()
		out := simulate(t, s, 10*time.Minute, *logsFlag)
		t.Logf("seed %d: %s in %s, %d lines, %v", s, out.Lasted, time.Since(began), len(out.Timeline.Entries()), out.Problems)
		if *count == 1 {
			t.Logf("\n%s", out.Timeline)
		}
	}
}
