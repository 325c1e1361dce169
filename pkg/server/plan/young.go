package plan

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Life is that of an instance which was built as its group builds them now.
type Life struct {
	ID    fleet.InstanceID
	Began time.Time     // its create
	Age   time.Duration // for which it has lived, registered; 0: it never registered
}

// Death is the end of an instance that had not settled.
type Death struct {
	Life
	At time.Time // when it was noticed
}

const (
	// leastDeaths is how many instances have to die young at least until that says anything.
	leastDeaths = 2
	// oneMoment is how far apart deaths are noticed that can have one cause from outside:
	// what is told of them at once, by agents, a provider and missing streams.
	oneMoment = 5 * time.Second
)

// DyingYoung reports whether the deaths of instances, in the order in which they were
// noticed, tell against the definition that these were built from. Survivors are the
// evidence for it: each death is weighed against the instances that live and have lived
// beyond its age. Instances that are still younger say nothing yet.
//
// A definition ends instances at an age, and an event from outside ends them at a moment,
// whatever their ages. So of those that die in one moment the youngest gives the age of
// all: the others had outlived it. Where half of the machines of an availability zone end,
// hardly any is left that is older than the oldest of the dead, which says nothing.
//
// The definition may have turned bad while others, built when it was good, live on. So
// those that began after the first death are weighed by themselves too, and after the
// first death among these again, and so on: replacements that all die are noticed
// beside any number of survivors.
//
// One more survivor never makes it true. One more death never makes it false, unless it
// shows that those of its moment did not die of their age.
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

// fatalAges are the ages at which instances died, in the order of the deaths: of those
// that died in one moment, the youngest one's.
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

// outweighed reports whether, among the deaths from some age on, on average more had
// died by the age of each than have lived beyond it.
func outweighed(died []Death, living []Life) bool {
	ages := fatalAges(died)
	slices.SortFunc(ages, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	// survivors[n] is how many have lived beyond the n-th age and not beyond the one before.
	survivors := make([]int, len(ages)+1)
	for _, l := range living {
		survivors[sort.Search(len(ages), func(n int) bool { return l.Age > ages[n] })]++
	}
	beyond, outlived := 0, 0 // outlived: of pairs of a death and a survivor that has lived beyond it
	for n := range ages {
		beyond += survivors[n]
		outlived += beyond
		if count := n + 1; count >= leastDeaths && count*(count+1)/2 > outlived {
			return true
		}
	}
	return false
}

// refutedSteps is how exactly it is computed when deaths are refuted: in parts of the
// highest age of a death.
const refutedSteps = 256

// RefutedIn is how long it takes until deaths that tell against a definition do so no
// longer, if no other dies, and whether that will be so at all.
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
