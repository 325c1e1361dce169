package garbage

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestGovern: what is judged is done, each change once, and nothing after the end.
func TestGovern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		now := reading{lives: 300 * mib, free: 100 * mib}
		began := time.Now()
		var set []int
		var releases int
		go govern(ctx, func() reading {
			now.at, now.allocated = time.Now(), now.allocated+mib/4
			if since := now.at.Sub(began); since > 5*time.Second && since < 10*time.Second {
				now.allocated += 100 * mib
			}
			return now
		}, func(percent int) int {
			set = append(set, percent)
			return 0
		}, func() { releases++; now.free = 0 })
		time.Sleep(15 * time.Second)
		stop()
		synctest.Wait()
		if want := []int{least, most, least}; !slices.Equal(set, want) {
			t.Errorf("percentages %v, want %v", set, want)
		}
		if releases != 1 {
			t.Errorf("memory was released %d times, want once", releases)
		}
	})
}

// TestRead: the runtime knows all that is asked of it.
func TestRead(t *testing.T) {
	before := read()
	kept := make([]byte, 8*mib)
	runtime.GC()
	with := read()
	if with.allocated-before.allocated < 8*mib || with.lives < 8*mib || !with.at.After(before.at) {
		t.Errorf("8 MiB were allocated between %+v and %+v", before, with)
	}
	runtime.KeepAlive(kept)
	runtime.GC()
	if without := read(); without.free == 0 || without.lives >= with.lives {
		t.Errorf("8 MiB were freed between %+v and %+v", with, without)
	}
}
