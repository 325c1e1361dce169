package shardtest

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// paceWindow is the time in which creates are counted.
const paceWindow = 10 * time.Minute

// build is what creates are counted of: what a term makes of a group, from one build.
type build struct {
	group fleet.GroupKey
	infra string
	epoch uint64
}

// pace counts the creates of groups of which no instance can settle. The lock of the
// book guards it.
type pace struct {
	Pacing
	settles func(i fleet.Instance) bool // whether one that is made now may
	creates map[build][]time.Time
	lost    map[fleet.GroupKey][]time.Time // instances that had settled and had to go
}

func newPace() pace {
	return pace{
		Pacing: DefaultPacing(), settles: func(fleet.Instance) bool { return true },
		creates: map[build][]time.Time{}, lost: map[fleet.GroupKey][]time.Time{},
	}
}

// recently returns the moments within the window.
func recently(all []time.Time, now time.Time) []time.Time {
	return slices.DeleteFunc(all, func(at time.Time) bool { return now.Sub(at) > paceWindow })
}

// tries is how many creates a window may hold of a group of which none settles: what is
// made together until two have failed, and half of the last twenty; the first ones, a
// second and more apart; then one for each wait, which is half of the longest on
// average; three times that, because waits are drawn.
func (p pace) tries(room int) int {
	const first = 24
	return first + 2*room + 3*int(2*paceWindow/max(p.BackoffMax, time.Second))
}

// judgePace is told of the first create of an instance. It refuses what a group makes
// that backs off, beside the replacements of what had settled.
func (b *book) judgePace(i fleet.Instance, now time.Time) {
	of := build{i.GroupKey(), i.Hashes.Infra, b.acted}
	if b.pace.settles(i) {
		delete(b.pace.creates, of)
		return
	}
	made := append(recently(b.pace.creates[of], now), now)
	b.pace.creates[of] = made
	lost := recently(b.pace.lost[of.group], now)
	b.pace.lost[of.group] = lost
	if most := b.pace.tries(b.most(of.group)) + len(lost); len(made) > most {
		b.violate("%s is create %d of %s within %s although none of them settles, want %d at most", i.ID, len(made), group(i), paceWindow, most)
	}
}

// lose notes the end of an instance that had settled: its replacement does not wait.
func (p pace) lose(old, i fleet.Instance, now time.Time) {
	if i.Phase != fleet.Running && p.settled(old, now) {
		p.lost[i.GroupKey()] = append(p.lost[i.GroupKey()], now)
	}
}

// settled reports whether an instance runs and has settled.
func (p pace) settled(i fleet.Instance, now time.Time) bool {
	return i.Phase == fleet.Running && i.RegisteredAt != nil && !now.Before(i.RegisteredAt.Add(p.Settle))
}

// forget drops what was counted of a group that is not wanted any more: should it come
// back it is another one.
func (p pace) forget(key fleet.GroupKey) {
	for of := range p.creates {
		if of.group == key {
			delete(p.creates, of)
		}
	}
}
