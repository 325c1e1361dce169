package shardtest

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// paceWindow is the time in which creates are counted.
const paceWindow = 10 * time.Minute

// build is the key by which creates are counted: term, group and Infra hash.
type build struct {
	group fleet.GroupKey
	infra string
	epoch uint64
}

// pace counts the creates of groups whose instances can't settle. Guarded by book.mu.
type pace struct {
	Pacing
	settles func(i fleet.Instance) bool // whether an instance created now can settle
	creates map[build][]time.Time
	lost    map[fleet.GroupKey][]time.Time // lost instances that had settled
}

func newPace() pace {
	return pace{
		Pacing: DefaultPacing(), settles: func(fleet.Instance) bool { return true },
		creates: map[build][]time.Time{}, lost: map[fleet.GroupKey][]time.Time{},
	}
}

// recently returns the times within the window.
func recently(all []time.Time, now time.Time) []time.Time {
	return slices.DeleteFunc(all, func(at time.Time) bool { return now.Sub(at) > paceWindow })
}

// tries returns how many creates a window may contain of a group whose instances don't settle:
// those made concurrently until two, and half of the last twenty, have failed; the first
// retries, a second and more apart; then one per back-off, which is half of the maximum on
// average. The result is three times that, because back-offs are random.
func (p pace) tries(room int) int {
	const first = 24
	return first + 2*room + 3*int(2*paceWindow/max(p.BackoffMax, time.Second))
}

// judgePace checks the first create of an instance: a group that backs off may exceed tries only
// by replacements of instances that had settled.
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
		b.violate("%s is create %d of %s within %s, although no instance settles: want at most %d", i.ID, len(made), group(i), paceWindow, most)
	}
}

// lose records the end of an instance that had settled: its replacement does not wait.
func (p pace) lose(old, i fleet.Instance, now time.Time) {
	if i.Phase != fleet.Running && p.settled(old, now) {
		p.lost[i.GroupKey()] = append(p.lost[i.GroupKey()], now)
	}
}

// settled reports whether an instance runs and has settled.
func (p pace) settled(i fleet.Instance, now time.Time) bool {
	return i.Phase == fleet.Running && i.RegisteredAt != nil && !now.Before(i.RegisteredAt.Add(p.Settle))
}

// forget drops the counts of a removed group: if it comes back, it starts again.
func (p pace) forget(key fleet.GroupKey) {
	for of := range p.creates {
		if of.group == key {
			delete(p.creates, of)
		}
	}
}
