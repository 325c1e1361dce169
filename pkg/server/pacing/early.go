package pacing

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/server/plan"
)

const (
	// earlyShare is the part of a group that it may lose early: a fifth.
	earlyShare = 5
	// momentShare is the part that it may lose early in one moment: half.
	momentShare = 2
	// oneMoment covers the delay between reports of agents, of the provider and of broken streams
	// about what happened at one time.
	oneMoment = 5 * time.Second
)

// earlyEnd is the end of an instance that was not announced and came before it had settled.
type earlyEnd struct {
	at  time.Time     // when it was noticed
	age time.Duration // since the registration; 0: it never registered
}

// earlyEnds are those of one configuration of a group, without those that were made good: each
// instance that settles, or ends as it announced, makes good one earlier end.
type earlyEnds struct {
	ends   []earlyEnd // in the order in which they were noticed
	goodAt time.Time  // instances that had settled by then have been counted
}

// add records one more in a group of the given size. Those of the last day are kept, and no more
// than the group has instances, so that a group which recovers makes them good.
func (e *earlyEnds) add(one earlyEnd, size int) {
	e.ends = append(e.ends, one)
	old := 0
	for old < len(e.ends) && one.at.Sub(e.ends[old].at) > plan.EarlyFor {
		old++
	}
	e.ends = e.ends[max(old, len(e.ends)-plan.MostEarly(size)):]
}

// exceed reports whether a group has lost more than it may lose early: a fifth of its size, or
// three, or half of it if what exceeds these fell in one moment. It removes what has been made good
// by the given time.
//
// So a bad definition is found before more than half of the group has been replaced, while the
// loss of a zone or of a host is made good at once.
func (e *earlyEnds) exceed(at time.Time, by scene) bool {
	if !e.above(by.size) {
		return false
	}
	e.makeGood(by.living(), by.settle, at)
	return e.above(by.size)
}

func (e *earlyEnds) above(size int) bool {
	n, may := len(e.ends), max(plan.LeastEarly, size/earlyShare)
	if n <= may {
		return false
	}
	return n > size/momentShare || e.ends[n-1].at.Sub(e.ends[may].at) >= oneMoment
}

// makeGood removes one end for each instance that settled after it.
func (e *earlyEnds) makeGood(living []plan.Life, settle time.Duration, now time.Time) {
	var settled []time.Time
	for _, l := range living {
		if at := now.Add(settle - l.Age); l.Age >= settle && at.After(e.goodAt) {
			settled = append(settled, at)
		}
	}
	slices.SortFunc(settled, time.Time.Compare)
	made := 0
	for _, at := range settled {
		if made < len(e.ends) && e.ends[made].at.Before(at) {
			made++
		}
	}
	e.ends, e.goodAt = e.ends[made:], now
}

func (e *earlyEnds) makeGoodOne() {
	if len(e.ends) > 0 {
		e.ends = e.ends[1:]
	}
}

func (e *earlyEnds) oldest() (age time.Duration) {
	for _, one := range e.ends {
		age = max(age, one.age)
	}
	return age
}
