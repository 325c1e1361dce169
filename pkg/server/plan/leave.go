package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// remove removes a pending or running instance: it is drained if there may be work on it,
// and deleted at once otherwise.
func (d *decision) remove(i *Instance, reason string) {
	if i.Busy {
		return
	}
	if i.Phase == fleet.Pending {
		d.drop(i, reason)
		return
	}
	at := d.drainUntil(i)
	if i.VM.Dead() || !at.After(d.view.Now) {
		d.act(Action{Kind: Delete, ID: i.ID, Reason: reason})
		return
	}
	d.act(Action{Kind: Drain, ID: i.ID, Reason: reason, At: at})
}

// drop removes a pending instance without a drain, since no work is on it. Without a machine
// it becomes a tombstone directly.
func (d *decision) drop(i *Instance, reason string) {
	kind := Delete
	if !mayBeMade(i) && i.VM != VMAlive {
		kind = Tombstone
	}
	d.act(Action{Kind: kind, ID: i.ID, Reason: reason})
}

// drainUntil returns the deadline of a drain that begins now: the group's drain timeout, or
// the time of a termination notice if that is earlier.
func (t *tally) drainUntil(i *Instance) time.Time {
	at := t.view.Now.Add(max(0, t.view.Group.DrainTimeout))
	if n := i.Health.Notice; n != nil && !n.At.IsZero() && n.At.Before(at) {
		return n.At
	}
	return at
}

// finishDrain deletes a draining instance once the drain is acknowledged or past its
// deadline, or the machine is dead.
func (d *decision) finishDrain(i *Instance) {
	if i.Busy {
		return
	}
	if i.Drain == nil || i.Drain.AckedAt != nil || i.VM.Dead() || d.due(d.drainEnd(i)) {
		d.act(Action{Kind: Delete, ID: i.ID, Reason: leaveReason(i)})
	}
}

// drainEnd returns the deadline of a drain in progress: as recorded, or the time of a
// termination notice if that is earlier.
func (t *tally) drainEnd(i *Instance) time.Time {
	if n := i.Health.Notice; n != nil && !n.At.IsZero() && n.At.Before(i.Drain.DeleteAt) {
		return n.At
	}
	return i.Drain.DeleteAt
}

// finishDelete repeats the deletion until the machine is confirmed to be gone.
func (d *decision) finishDelete(i *Instance) {
	switch {
	case i.Busy:
	case i.VM == VMGone:
		d.act(Action{Kind: Tombstone, ID: i.ID, Reason: leaveReason(i)})
	case d.due(i.RetryAt):
		d.act(Action{Kind: Delete, ID: i.ID, Reason: leaveReason(i)})
	}
}

// prune removes a tombstone when its retention is over.
func (d *decision) prune(i *Instance) {
	if i.Busy {
		return
	}
	if i.DeletedAt == nil || d.due(i.DeletedAt.Add(d.retention(i))) {
		d.act(Action{Kind: Prune, ID: i.ID, Reason: ReasonRetention})
	}
}

// leaveReason returns the first reason for which the instance leaves.
func leaveReason(i *Instance) string {
	if i.Reason == "" && i.Drain != nil {
		return i.Drain.Reason
	}
	return i.Reason
}
