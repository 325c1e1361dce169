package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// giveUp ends a pending instance that will not come: it was never made, or it
// did not register in time. It fills its place until its record says that it
// leaves, and is replaced then.
func (d *decision) giveUp(i *Instance) bool {
	if i.Phase != fleet.Pending || i.Busy {
		return false
	}
	switch {
	case i.Stray && i.Provider.ID == "" && i.VM != VMAlive:
		d.act(Action{Kind: Tombstone, ID: i.ID, Reason: ReasonStray})
	case i.Stray:
		d.act(Action{Kind: Delete, ID: i.ID, Reason: ReasonStray})
	case d.view.Settings.RegistrationTimeout > 0 && mayBeMade(i) && d.due(d.registerBy(i)):
		d.act(Action{Kind: Delete, ID: i.ID, Reason: ReasonRegistrationTimeout})
	default:
		return false
	}
	return true
}

// mayBeMade reports whether there may be a machine: the provider was asked for one
// and did not certainly refuse. An instance without waits for one, and nobody can
// register meanwhile.
func mayBeMade(i *Instance) bool { return !unmade(i) || i.Provider.CreateAttemptedAt != nil }

// registerBy counts from the last create that may have made the machine, and from
// the takeover at the earliest: before it nothing was heard of this instance.
func (t *tally) registerBy(i *Instance) time.Time {
	since := latest(i.CreatedAt, i.AskedAt, t.view.Takeover)
	if asked := i.Provider.CreateAttemptedAt; asked != nil {
		since = latest(since, *asked)
	}
	return since.Add(t.view.Settings.RegistrationTimeout)
}

// resume repeats the creates that were never made or whose outcome is unknown,
// with the same ids, as far as the pace of the group's creates lets it.
func (d *decision) resume() {
	for n := range d.live {
		m := &d.live[n]
		if m.running || m.going || !unmade(m.Instance) {
			continue
		}
		due := m.RetryAt
		if !m.Owed {
			due = latest(due, d.view.Pace.NotBefore)
		}
		if d.due(due) && (m.Owed || d.trialsLeft() > 0) {
			d.act(Action{Kind: Resume, ID: m.ID, Reason: ReasonNotCreated})
			d.resumed++
		}
	}
}

func latest(t time.Time, others ...time.Time) time.Time {
	for _, o := range others {
		if o.After(t) {
			t = o
		}
	}
	return t
}
