package reconcile

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// see takes over the provider's word about an instance, unless a newer one is
// known. It reports whether that changed anything.
func (o *observations) see(r fleet.Instance, a answer, now time.Time) (changed bool) {
	return len(o.seeAll([]fleet.Instance{r}, []answer{a}, now)) > 0
}

// seeAll takes over answers that came together, each about the record of the same
// place, as one: no decision is made on some of them. Of a question that got none it
// only remembers that it is open. It returns the records of which something changed.
func (o *observations) seeAll(records []fleet.Instance, answers []answer, now time.Time) (changed []fleet.Instance) {
	var moved, well []fleet.GroupKey
	o.mu.Lock()
	for n, r := range records {
		b := o.observation(r.ID)
		word, state := b.vm, b.state
		if answers[n].err != nil {
			b.leaveOpen(answers[n])
		} else {
			b.see(r, answers[n], o, now)
		}
		if b.absent() {
			o.absent[r.ID] = true
		} else {
			delete(o.absent, r.ID)
		}
		switch {
		case b.vm == word:
		case b.vm == plan.VMAlive && word == plan.VMUnknown:
			well = append(well, r.GroupKey())
		default:
			moved = append(moved, r.GroupKey())
		}
		if b.vm != word || b.state != state {
			changed = append(changed, r)
		}
	}
	o.mu.Unlock()
	o.schedule.mark(moved...)
	o.schedule.markSoon(now, well...)
	return changed
}

func (b *observation) see(r fleet.Instance, a answer, o *observations, now time.Time) {
	b.shown = b.shown || a.found
	if a.asked.Before(b.asOf) {
		return
	}
	b.asOf, b.unanswered, b.unlisted = a.asked, false, false
	b.hear(a.vm)
	if len(a.vm.Addresses) > 0 {
		b.addresses = a.vm.Addresses
	}
	word := wordOf(a.vm.State)
	switch {
	case !a.found:
		b.miss(r, a.asked, o)
	case b.ended && !o.consistent && !dead(word): // an answer that is older than one before it
	default:
		b.vm, b.state = word, a.vm.State
		b.ended = dead(word)
		b.missedAt, b.askAt = time.Time{}, time.Time{}
	}
	if dead(b.vm) {
		b.lose(signProvider, now, r)
		if b.loss != nil && b.loss.statusAt.IsZero() {
			b.loss.statusAt = now
		}
	}
	if b.vm == plan.VMAlive && !b.doubtful() && b.health.Notice == nil {
		b.loss = nil
	}
}

// miss takes over that a question sent at asked did not find the VM.
func (b *observation) miss(r fleet.Instance, asked time.Time, o *observations) {
	f := missed(r, search{consistent: o.consistent, shown: b.shown, attempted: b.mayHaveAsked(r, o.began), missedAt: b.missedAt}, asked)
	b.missedAt, b.askAt = f.missedAt, f.askAt
	if f.gone {
		b.vm, b.state = plan.VMGone, provider.StateDeleted
	}
}

// leaveOpen takes over that a question which a list gave reason for got no answer.
func (b *observation) leaveOpen(a answer) {
	if !a.asked.Before(b.asOf) {
		b.unanswered, b.unlisted = true, a.unlisted
	}
}

// absent reports whether the VM was not found, or was not listed and can't be asked
// about, and nothing but that speaks for its end.
func (b *observation) absent() bool { return (b.unlisted || !b.missedAt.IsZero()) && !b.ended }

// attempted is when the provider was last asked to create the instance.
func (b *observation) attempted(r fleet.Instance) time.Time {
	at := b.attemptedAt
	if r.Provider.CreateAttemptedAt != nil && r.Provider.CreateAttemptedAt.After(at) {
		at = *r.Provider.CreateAttemptedAt
	}
	return at
}

// mayHaveAsked is when the provider may have been asked to create it last. Of the
// creates before this term only the first left its time in the record: while the
// provider throttled, the leader before this one may have asked until its end.
func (b *observation) mayHaveAsked(r fleet.Instance, began time.Time) time.Time {
	at := b.attempted(r)
	if b.attemptedAt.IsZero() && r.Provider.CreateAttemptedAt != nil && began.After(at) {
		return began
	}
	return at
}

func wordOf(s provider.State) plan.VM {
	switch {
	case !s.Exists():
		return plan.VMGone
	case s.Alive():
		return plan.VMAlive
	default:
		return plan.VMDown
	}
}

func dead(v plan.VM) bool { return v == plan.VMDown || v == plan.VMGone }
