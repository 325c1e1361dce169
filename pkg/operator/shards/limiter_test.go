package shards_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/operator/shards"
)

// TestLimiter: no more calls of a shard run than its limit, which holds up no other shard, and
// an ended call leaves its place.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l shards.Limiter
		answers := make(chan struct{})
		for range 3 {
			go l.Try("one", 3, func() error {
				<-answers
				return nil
			})
		}
		synctest.Wait()
		failed := errors.New("failed")
		fail := func() error { return failed }
		last := time.Duration(0)
		for range 1000 {
			again, err := l.Try("one", 3, fail)
			if err != nil || again <= last {
				t.Fatalf("again in %v, %v: want a time after the last one's, %v", again, err, last)
			}
			last = again
		}
		if again, err := l.Try("two", 3, fail); again != 0 || !errors.Is(err, failed) {
			t.Errorf("at the other shard: again in %v, %v: want the call's error", again, err)
		}
		close(answers)
		synctest.Wait()
		if again, err := l.Try("one", 1, fail); again != 0 || !errors.Is(err, failed) {
			t.Errorf("at the free shard: again in %v, %v: want the call's error", again, err)
		}
	})
}

// TestLimiterKeepsBusy: a thousand requests that come back when they are told to are all made,
// in little more time than their calls take, and without many attempts.
func TestLimiterKeepsBusy(t *testing.T) {
	const all, limit, takes = 1000, 16, 30 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var l shards.Limiter
		var running, attempts atomic.Int32
		call := func() error {
			defer running.Add(-1)
			if n := running.Add(1); n > limit {
				t.Errorf("%d calls run", n)
			}
			time.Sleep(takes)
			return nil
		}
		began := time.Now()
		var requests sync.WaitGroup
		for range all {
			requests.Go(func() {
				for again := time.Duration(-1); again != 0; time.Sleep(again) {
					attempts.Add(1)
					again, _ = l.Try("one", limit, call)
				}
			})
		}
		requests.Wait()
		if took, least := time.Since(began), all/limit*takes; took > least*3/2 {
			t.Errorf("took %v, want little more than %v", took, least)
		}
		if n := attempts.Load(); n > 4*all {
			t.Errorf("%d attempts for %d calls", n, all)
		}
	})
}
