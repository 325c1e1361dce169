package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// remove lets a pending or running instance go: drained when there may be work
// on it to move away, deleted at once when there is not.
func (d *decision) remove(i *Instance, reason string) {
	if i.Busy {
		return
	}
	if i.Phase == fleet.Pending {
		d.drop(i, reason)
		return
	}
	at := d.drainUntil(i)
	if i.VM.dead() || !at.After(d.view.Now) {
		d.act(Action{Kind: Delete, ID: i.ID, Reason: reason})
		return
	}
	d.act(Action{Kind: Drain, ID: i.ID, Reason: reason, At: at})
}

// drop ends a pending instance: no work is on it. Without a machine there is nothing
// to delete.
func (d *decision) drop(i *Instance, reason string) {
	kind := Delete
	if !mayBeMade(i) && i.VM != VMAlive {
		kind = Tombstone
	}
	d.act(Action{Kind: kind, ID: i.ID, Reason: reason})
}

// drainUntil is the end of a drain that begins now: the group's drain timeout,
// or the moment at which the provider takes the machine if that is earlier.
func (t *tally) drainUntil(i *Instance) time.Time {
	at := t.view.Now.Add(max(0, t.view.Group.DrainTimeout))
	if n := i.Health.Notice; n != nil && !n.At.IsZero() && n.At.Before(at) {
		return n.At
	}
	return at
}

// finishDrain deletes a draining instance once the drain was acknowledged, is
// due, or has lost its object because the machine is dead.
func (d *decision) finishDrain(i *Instance) {
	if i.Busy {
		return
	}
	if i.Drain == nil || i.Drain.AckedAt != nil || i.VM.dead() || d.due(d.drainEnd(i)) {
		d.act(Action{Kind: Delete, ID: i.ID, Reason: leaveReason(i)})
	}
}

// drainEnd is when a drain under way ends: as recorded, or earlier when a
// termination was announced since.
func (t *tally) drainEnd(i *Instance) time.Time {
	if n := i.Health.Notice; n != nil && !n.At.IsZero() && n.At.Before(i.Drain.DeleteAt) {
		return n.At
	}
	return i.Drain.DeleteAt
}

// finishDelete asks for the deletion until the machine is confirmed to be gone.
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
	if i.DeletedAt == nil || d.due(i.DeletedAt.Add(d.view.Settings.DeletedRetention)) {
		d.act(Action{Kind: Prune, ID: i.ID, Reason: ReasonRetention})
	}
}

// leaveReason keeps the first reason for which an instance leaves.
func leaveReason(i *Instance) string {
	if i.Reason == "" && i.Drain != nil {
		return i.Drain.Reason
	}
	return i.Reason
}

// dead reports whether the machine will not work again.
func (v VM) dead() bool { return v == VMDown || v == VMGone }
