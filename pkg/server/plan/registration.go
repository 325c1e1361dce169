package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// failPending removes a pending instance that was never created or did not register in time.
// It counts towards the size until its record says that it leaves, and is replaced then.
func (d *decision) failPending(i *Instance) bool {
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

// mayBeMade reports whether there may be a machine: its create was sent to the provider and
// not definitely refused. Otherwise the registration timeout does not apply yet.
func mayBeMade(i *Instance) bool { return !unmade(i) || i.Provider.CreateAttemptedAt != nil }

// registerBy returns the registration deadline, counted from the last create that may have
// made the machine, or from the takeover if that is later.
func (t *tally) registerBy(i *Instance) time.Time {
	since := latest(i.CreatedAt, i.AskedAt, t.view.Takeover)
	if asked := i.Provider.CreateAttemptedAt; asked != nil {
		since = latest(since, *asked)
	}
	return since.Add(t.view.Settings.RegistrationTimeout)
}

// resume repeats creates that were never made or whose outcome is unknown, with the same
// ids, as far as the group's pace allows.
func (d *decision) resume() {
	for n := range d.live {
		m := &d.live[n]
		if m.running || m.going || !unmade(m.Instance) {
			continue
		}
		due := m.RetryAt
		if !m.Immediate {
			due = latest(due, d.view.Pace.NotBefore)
		}
		if d.due(due) && (m.Immediate || d.probationLeft() > 0) {
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
