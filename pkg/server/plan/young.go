package plan

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Life is the lifetime of an instance that was built from its group's current definition.
type Life struct {
	ID    fleet.InstanceID
	Began time.Time     // its create
	Age   time.Duration // since its registration; 0: it never registered
}

// Death is the failure of an instance that had not settled.
type Death struct {
	Life
	At time.Time // when it was noticed
}

const (
	// leastDeaths is the minimum number of deaths for any conclusion.
	leastDeaths = 2
	// oneMoment is the window in which deaths are assumed to have one external cause. It
	// covers the delay between reports of agents, of the provider and of broken streams.
	oneMoment = 5 * time.Second
)

// DyingYoung reports whether the deaths, sorted by the time they were noticed, indicate a
// broken definition. Survivors are the evidence against it: each death is compared with the
// living instances that have outlived its age. Younger instances don't count yet.
//
// A broken definition ends instances at a certain age, an external event ends them at a
// certain time, whatever their age. So all deaths of one moment count with the age of the
// youngest: the others had outlived it. Otherwise, when half of the machines of an
// availability zone fail, hardly any survivor would be older than the oldest of the dead.
//
// A definition may break while instances that were built before live on. So the instances
// that began after the first death are also evaluated alone, then those that began after the
// first death among these, and so on: replacements that all die are noticed despite any
// number of older survivors.
//
// An additional survivor never makes the result true. An additional death never makes it
// false, unless it lowers the age that counts for the deaths of its moment.
func DyingYoung(died []Death, living []Life) bool {
	for len(died) >= leastDeaths {
		if outweighed(died, living) {
			return true
		}
		first := died[0].At
		died = slices.DeleteFunc(slices.Clone(died), func(d Death) bool { return !d.Began.After(first) })
		living = slices.DeleteFunc(slices.Clone(living), func(l Life) bool { return !l.Began.After(first) })
	}
	return false
}

// fatalAges returns the age that counts for each death: the lowest age among the deaths of
// the same moment.
func fatalAges(died []Death) []time.Duration {
	ages := make([]time.Duration, len(died))
	for first := 0; first < len(died); {
		after := first
		youngest := died[first].Age
		for ; after < len(died) && died[after].At.Sub(died[first].At) < oneMoment; after++ {
			youngest = min(youngest, died[after].Age)
		}
		for ; first < after; first++ {
			ages[first] = youngest
		}
	}
	return ages
}

// outweighed reports whether, for the deaths at or above some age, there are on average more
// deaths by the age of each than survivors beyond it.
func outweighed(died []Death, living []Life) bool {
	ages := fatalAges(died)
	slices.SortFunc(ages, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	// survivors[n] is how many have outlived the n-th age but not the one before.
	survivors := make([]int, len(ages)+1)
	for _, l := range living {
		survivors[sort.Search(len(ages), func(n int) bool { return l.Age > ages[n] })]++
	}
	beyond, outlived := 0, 0 // outlived: the number of pairs of a death and a survivor beyond its age
	for n := range ages {
		beyond += survivors[n]
		outlived += beyond
		if count := n + 1; count >= leastDeaths && count*(count+1)/2 > outlived {
			return true
		}
	}
	return false
}

// refutedSteps is the resolution of RefutedIn: steps per highest age of a death.
const refutedSteps = 256

// RefutedIn returns how long it takes until DyingYoung is false if no other instance dies,
// and whether it ever will be.
func RefutedIn(died []Death, living []Life) (after time.Duration, ok bool) {
	var oldest time.Duration
	for _, d := range died {
		oldest = max(oldest, d.Age)
	}
	step := oldest/refutedSteps + time.Millisecond
	older := make([]Life, len(living))
	n := sort.Search(refutedSteps+2, func(n int) bool {
		for i, l := range living {
			l.Age += time.Duration(n) * step
			older[i] = l
		}
		return !DyingYoung(died, older)
	})
	return time.Duration(n) * step, n < refutedSteps+2
}
