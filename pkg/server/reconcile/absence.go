package reconcile

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file is the judgement on VMs that the provider does not show: one by one,
// and all of a shard's together. A VM that is shown in a state from which it will
// not work again needs none: that acts at once.

const (
	// believeNotFound is for how long after a create a provider that does not show
	// the VM may only be slow to show it.
	believeNotFound = time.Minute
	// confirmAfter lies between the two questions that must both be answered with
	// not found where reads may lag, since either answer alone may be stale.
	confirmAfter = 2 * time.Second
	// comeBack is how long agents have to open their streams, after a takeover or
	// after one of them spoke against the provider, before their silence counts.
	comeBack = 30 * time.Second
)

// search is what is known of a VM when a Get does not find it.
type search struct {
	consistent bool      // the provider's reads always show the present
	shown      bool      // the provider answered with it in this term
	attempted  time.Time // the last create
	missedAt   time.Time // when the first question was sent of those in a row that did not find it; zero: none
}

// finding is what a Get that does not find a VM amounts to. Neither gone nor to be
// asked again is nothing.
type finding struct {
	gone     bool
	missedAt time.Time // of the row; zero: the answer counts for nothing
	askAt    time.Time // when the question is to be repeated; zero: no need
}

// missed judges a question sent at asked that did not find the record's VM. Where
// reads are consistent, only a create that may still land speaks against the answer.
// Elsewhere it takes two answers, and soon after the create an instance that has
// registered: its VM was there for certain.
func missed(r fleet.Instance, s search, asked time.Time) finding {
	registered := r.RegisteredAt != nil
	proven := registered || s.consistent && (s.shown || r.Provider.ID != "")
	sure := s.attempted.Add(believeNotFound)
	if !proven && asked.Before(sure) {
		return finding{askAt: sure}
	}
	f := finding{missedAt: s.missedAt}
	if f.missedAt.IsZero() {
		f.missedAt = asked
	}
	if again := f.missedAt.Add(confirmAfter); !s.consistent && asked.Before(again) {
		f.askAt = again
		return f
	}
	f.gone = true
	return f
}

// roll is how a shard's instances were accounted for at one moment.
type roll struct {
	records   int // tombstones aside
	absent    int // of these: the provider does not find the VM, or does not list it and gives no other answer
	connected int // of these: the agent's stream is open all the same
	found     int // the provider shows the VM, of an instance that is to be there
}

// exceeds reports whether so many are absent at once that the provider, rather than
// machines, may be at fault.
func (r roll) exceeds() bool { return r.absent > orphanLimit(r.records) }

// verdict is what the absence of a part of the shard amounts to.
type verdict int

const (
	believed verdict = iota // few are absent, or the loss is real
	awaited                 // the agents may still speak: nothing is decided about the absent until then
	blind                   // the same, and not one VM is found: nothing is done until then
	refuted                 // agents speak from machines that the provider does not have
)

// weigh judges the absent of a shard by their agents, who are the second witness.
// silentFrom is since when their silence can be heard: the takeover, or the last
// moment at which one of them spoke. until is when what is awaited is over.
func weigh(r roll, silentFrom, now time.Time) (v verdict, until time.Time) {
	until = silentFrom.Add(comeBack)
	switch {
	case !r.exceeds():
		return believed, time.Time{}
	case r.connected > 0:
		return refuted, time.Time{}
	case now.Before(until) && r.found == 0:
		return blind, until
	case now.Before(until):
		return awaited, until
	default:
		return believed, time.Time{}
	}
}
