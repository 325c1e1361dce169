// Package garbage adapts a process's GC percentage (GOGC) to its allocation rate.
//
// The collector runs when the heap has grown by a percentage of the live heap. Its cost is
// the allocation rate, times the cost of marking a live byte, divided by that percentage: the
// size of the live heap cancels out. So a process that holds much and allocates little can have
// a very low percentage, and little memory beyond the live heap, at next to no cost; a process
// that allocates much needs a high one.
//
// When a process becomes calm after it was busy, its free memory is returned to the machine.
package garbage

import (
	"slices"
	"time"
)

// lookAt is the approximate cost of marking a live byte, in seconds of CPU time: 2 to 3 ns were
// measured for the small objects of thousands of connections. share is the fraction of a CPU
// that the collector may use before the percentage is raised.
const (
	lookAt = 2e-9
	share  = 0.1
)

// Bounds of the percentage. The maximum is the one used without pacing: half of the live heap.
const (
	least = 5
	most  = 50
)

// leastSlack is the minimum garbage before a collection, in bytes, so that a small heap is not
// collected for each megabyte.
const leastSlack = 3 << 20

// A process is calm when its allocation rate has needed only the lowest percentage for calmFor.
// It then returns its free memory if that is more than idleMost bytes and 1/32 of the live
// heap: at once after a storm (a time at the highest percentage), otherwise at most once per
// releaseEvery, as releasing forces a collection.
const (
	calmFor      = 2 * time.Second
	releaseEvery = time.Minute
	idleMost     = 4 << 20
)

// reading is a sample of the runtime's metrics.
type reading struct {
	at        time.Time
	allocated uint64 // bytes since the process started
	lives     uint64 // live heap at the last collection, in bytes
	free      uint64 // bytes neither in use nor returned
}

// order is the decision after a reading.
type order struct {
	percent int
	release bool // return free memory to the machine
}

// window is the number of intervals over which the allocation rate is averaged, so that a short
// burst, as from a full listing, is not a storm.
const window = 4

// pace is the state kept between readings.
type pace struct {
	recent   []reading // up to window+1, oldest first
	percent  int       // as last ordered
	busy     time.Time // last time that more than the lowest percentage was needed
	stormed  bool      // since memory was last released
	released time.Time
}

// judge decides what to do after a reading.
func (p *pace) judge(r reading) order {
	rate := p.rate(r)
	if wanted := percent(rate, r.lives); differs(wanted, p.percent) {
		p.percent = wanted
	}
	if p.busy.IsZero() || calledFor(rate) > least {
		p.busy = r.at
	}
	p.stormed = p.stormed || calledFor(rate) >= most
	idle := r.free > max(idleMost, r.lives/32)
	again := p.stormed || r.at.Sub(p.released) >= releaseEvery
	release := idle && again && r.at.Sub(p.busy) >= calmFor
	if release {
		p.released, p.stormed = r.at, false
	}
	return order{percent: p.percent, release: release}
}

// rate returns the allocation rate up to this reading, in bytes per second.
func (p *pace) rate(r reading) float64 {
	p.recent = append(p.recent, r)
	if len(p.recent) > window+1 {
		p.recent = slices.Delete(p.recent, 0, 1)
	}
	first := p.recent[0]
	if elapsed := r.at.Sub(first.at).Seconds(); elapsed > 0 {
		return float64(r.allocated-first.allocated) / elapsed
	}
	return 0
}

// calledFor returns the percentage at which the collector uses its share of a CPU.
func calledFor(rate float64) float64 { return rate * lookAt / share * 100 }

// percent returns the GC percentage for an allocation rate in bytes per second.
func percent(rate float64, lives uint64) int {
	lowest := max(least, float64(leastSlack)/float64(max(lives, 1))*100)
	return int(min(most, max(lowest, calledFor(rate))))
}

// differs reports whether a change of the percentage is worth it: each change stops the process
// briefly.
func differs(a, b int) bool { return 4*max(a-b, b-a) > b }
