// Package garbage decides how much garbage a process lets lie before it collects.
//
// The collector runs when the heap has grown by so many percent of all that it
// has to look at, which is what lives. What it costs follows: the rate at which
// garbage is made, times the time that a byte takes to look at, divided by that
// percentage. What lives cancels out. So a process that holds much and allocates
// little can have a very low percentage, and little more memory than what lives,
// for next to no time; and one that allocates much needs a high one.
//
// When a process has calmed down after it was busy, the memory that it does not
// need any more is given back to the machine.
package garbage

import (
	"slices"
	"time"
)

// lookAt is about what a byte that lives costs the collector, in seconds of CPU
// time: seen were 2 to 3 ns for the small objects of thousands of connections.
// share is how much of a processor collecting may take before more garbage is let
// lie instead.
const (
	lookAt = 2e-9
	share  = 0.1
)

// The bounds of the percentage. The upper one is the one without any pace: half of
// what lives.
const (
	least = 5
	most  = 50
)

// leastSlack is how much garbage may lie in any case, in bytes: what little lives
// is looked at quickly, but not for each megabyte.
const leastSlack = 3 << 20

// A process is calm when it has allocated so little for calmFor that the lowest
// percentage is enough. Then it gives back what is free, if that is more than
// idleMost bytes and one in thirty-two of what lives: at once after a storm, in
// which the percentage was the highest, and else not again within releaseEvery,
// for it collects for that.
const (
	calmFor      = 2 * time.Second
	releaseEvery = time.Minute
	idleMost     = 4 << 20
)

// reading is what the runtime says of a process.
type reading struct {
	at        time.Time
	allocated uint64 // bytes since the process began
	lives     uint64 // bytes that the last collection looked at
	free      uint64 // bytes that are neither in use nor given back
}

// order is what is to be done about it.
type order struct {
	percent int
	release bool // what is free, to the machine
}

// window is over how many pauses between readings the rate of allocation is taken:
// a short burst, as of a look at all that there is, is no storm.
const window = 4

// pace keeps what it takes to judge a reading: the ones before.
type pace struct {
	recent   []reading // up to window and one, oldest first
	percent  int       // as ordered
	busy     time.Time // when more than the lowest percentage was called for
	stormed  bool      // since it was released
	released time.Time
}

// judge says what to do after a reading.
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

// rate is how many bytes a second are allocated, up to this reading.
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

// calledFor is the percentage at which collecting takes its share of a processor.
func calledFor(rate float64) float64 { return rate * lookAt / share * 100 }

// percent is how much garbage may lie, in percent of what lives, at a rate of
// allocation in bytes a second.
func percent(rate float64, lives uint64) int {
	lowest := max(least, float64(leastSlack)/float64(max(lives, 1))*100)
	return int(min(most, max(lowest, calledFor(rate))))
}

// differs keeps the percentage from following every breath: each change stops the
// process for a moment.
func differs(a, b int) bool { return 4*max(a-b, b-a) > b }
