package plan_test

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

const (
	faultTime  = 3 * time.Minute
	settleTime = 12 * time.Minute
	restTime   = 2 * time.Minute // at the end: nothing may happen
)

// TestSimulation plays histories of a group from seeds. SIM_SEED=n replays one
// and prints its timeline, SIM_HISTORIES=n sets their number.
func TestSimulation(t *testing.T) {
	if s := os.Getenv("SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SIM_SEED: %v", err)
		}
		w := play(seed, true)
		t.Logf("seed %d\n%s", seed, w.timeline)
		if w.problem != "" {
			t.Error(w.problem)
		}
		return
	}
	histories := uint64(10_000)
	if s := os.Getenv("SIM_HISTORIES"); s != "" {
		var err error
		if histories, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("SIM_HISTORIES: %v", err)
		}
	}
	seed, acts := playAll(histories)
	if seed != 0 {
		w := play(seed, true)
		t.Fatalf("seed %d: %s (replay with SIM_SEED=%d)\n%s", seed, w.problem, seed, w.timeline)
	}
	if acts < int64(histories) {
		t.Errorf("%d histories saw %d actions: the model stands still", histories, acts)
	}
}

// playAll returns the lowest failing seed found, or 0.
func playAll(histories uint64) (broken uint64, acts int64) {
	var next, first atomic.Uint64
	var total atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for seed := next.Add(1); seed <= histories && first.Load() == 0; seed = next.Add(1) {
				w := play(seed, false)
				total.Add(int64(w.acts))
				if w.problem != "" {
					first.CompareAndSwap(0, seed)
				}
			}
		})
	}
	all.Wait()
	return first.Load(), total.Load()
}

// play causes faults for a while, and then waits for the group to settle.
func play(seed uint64, trace bool) *world {
	w := newWorld(seed, trace)
	end := w.now.Add(faultTime)
	for range 3 + w.rng.IntN(10) {
		w.after(w.upTo(faultTime), w.fault)
	}
	w.decide()
	w.run(end)
	w.calmDown()
	w.run(end.Add(settleTime - restTime))
	w.acts, w.failCreates = w.acts+1, false
	before := w.acts
	w.run(end.Add(settleTime))
	w.checkSettled(w.acts - before)
	return w
}

// calmDown ends the faults. One group in eight is removed now.
func (w *world) calmDown() {
	w.say("faults are over")
	w.calm, w.group.Disabled, w.grant = true, "", 1+w.rng.IntN(3)
	w.group.RolloutPaused = w.group.RolloutPaused && w.chance(0.5) && !slices.ContainsFunc(w.machines, (*machine).isBad)
	w.settings.EligibleAge, w.settings.ForcedAge = 0, 0
	w.mend()
	w.group.Removed = w.chance(0.125)
	w.decide()
}

func (w *world) check(v plan.View, d plan.Decision) {
	if problem := broken(v, d); problem != "" {
		w.fail("%s", problem)
	}
}

// checkSettled checks the final state.
func (w *world) checkSettled(acts int) {
	size := w.group.Size
	if w.group.Removed {
		size = 0
	}
	working := 0
	for _, m := range w.machines {
		switch {
		case m.recorded && m.RemovalAskedAt != nil && m.Phase != fleet.Deleted:
			w.fail("left over although asked out: %s, %s", name(m.ID), m.Phase)
		case m.recorded && m.OnDemand && m.Phase == fleet.Running && m.alive && !w.group.Removed:
		case m.recorded && m.Phase == fleet.Running && m.alive && m.up && (m.Hashes.Infra == w.group.Hashes.Infra || w.group.RolloutPaused):
			working++
		case m.recorded && m.Phase == fleet.Deleted:
		default:
			w.fail("left over: %s, %s", name(m.ID), m.Phase)
		}
	}
	if working != size {
		w.fail("%d work, size is %d", working, size)
	}
	if acts > 0 && !w.group.Removed {
		w.fail("%d actions while nothing happened", acts)
	}
	if w.forgotten != w.group.Removed {
		w.fail("forgotten is %v, removed is %v", w.forgotten, w.group.Removed)
	}
	if len(w.group.Leaving) > 0 {
		w.fail("%d ids still in the leaving list", len(w.group.Leaving))
	}
}
