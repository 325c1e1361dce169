package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// deleteAgain is when a VM whose deletion was accepted, and which is still
// there, is asked to go once more.
const deleteAgain = 30 * time.Second

// errMovedOn says that a record is no longer what the decision was made for. The
// next pass decides about what it is now.
var errMovedOn = errors.New("the record has moved on")

// apply sets workers going on what was decided about one group. l.mu is held.
func (l *Loop) apply(ctx context.Context, v plan.View, actions []plan.Action, defined bool) {
	key := v.Group.Key
	launches := l.unrecorded(v)
	lost := l.lostOf(v)
	for _, a := range actions {
		switch a.Kind {
		case plan.Create:
			x := &launch{group: v.Group, decidedAt: v.Now}
			if len(lost) > 0 {
				x.replaces, lost = lost[0], lost[1:]
				l.tracks[x.replaces].loss.awaited = true
			}
			launches = append(launches, x)
		case plan.Resume:
			launches = append(launches, &launch{group: v.Group, decidedAt: v.Now, record: fleet.Instance{ID: a.ID}})
		case plan.Settle:
			l.errand(ctx, v, func() error { return l.cfg.Groups.Settle(ctx, key, a.IDs) })
		case plan.Forget:
			if defined {
				l.errand(ctx, v, func() error { return l.cfg.Groups.Forget(ctx, key) })
			}
		case plan.Wake:
			l.wakeAt(key, a.At)
		default:
			l.work(ctx, key, a, v.Now)
		}
	}
	for _, id := range lost {
		l.tracks[id].loss.awaited = false // nothing takes its place
	}
	l.queue.set(key, launches)
	for _, i := range v.Instances {
		if t := l.tracks[i.ID]; t != nil && !t.busy && t.quietUntil.After(v.Now) {
			l.wakeAt(key, t.quietUntil)
		}
	}
}

// unrecorded returns the creates of the group whose record's write failed and is
// due again, and forgets those that need no second try.
func (l *Loop) unrecorded(v plan.View) []*launch {
	var again []*launch
	for _, x := range l.stillWanted(v) {
		due := x.retryAt
		if v.CreateNotBefore.After(due) {
			due = v.CreateNotBefore
		}
		if due.After(v.Now) {
			l.wakeAt(v.Group.Key, due)
			continue
		}
		again = append(again, x)
	}
	return again
}

// stillWanted returns the group's creates that wait for another try of their
// record and that the group would ask for now, the oldest first. Those whose
// record is there after all are forgotten. One that the group can do without
// keeps its place, since its record may be there, until a relist did not show it:
// another that is needed meanwhile is this one, and not one more.
func (l *Loop) stillWanted(v plan.View) []*launch {
	var waiting []*launch
	forget := func(x *launch) {
		delete(l.launching, x.record.ID)
		l.mark(v.Group.Key) // the view still had it
	}
	for id, x := range l.launching {
		if x.active || x.group.Key != v.Group.Key {
			continue
		}
		if _, ok := l.cfg.Ledger.Get(id); ok {
			forget(x)
			continue
		}
		waiting = append(waiting, x)
	}
	if len(waiting) == 0 {
		return nil
	}
	slices.SortFunc(waiting, func(a, b *launch) int { return strings.Compare(string(a.record.ID), string(b.record.ID)) })
	keep := min(len(waiting), missingWithout(v, waiting))
	for _, x := range waiting[keep:] {
		if x.unlisted {
			forget(x)
		}
	}
	return waiting[:keep]
}

// missingWithout is how many creates a group would ask for if it had not begun
// these.
func missingWithout(v plan.View, begun []*launch) int {
	ids := make(map[fleet.InstanceID]bool, len(begun))
	for _, x := range begun {
		ids[x.record.ID] = true
	}
	v.CreateNotBefore = time.Time{} // a wait is no reason to give them up
	v.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i plan.Instance) bool { return ids[i.ID] })
	missing := 0
	for _, a := range plan.Next(v) {
		if a.Kind == plan.Create {
			missing++
		}
	}
	return missing
}

// lostOf returns the lost instances of a group that nothing replaces yet, the
// first lost first. A tombstone is one of them only if its replacement waits.
func (l *Loop) lostOf(v plan.View) []fleet.InstanceID {
	var lost []fleet.InstanceID
	for _, i := range v.Instances {
		t := l.tracks[i.ID]
		if t != nil && !i.OnDemand && t.lost() && (i.Phase != fleet.Deleted || t.loss.awaited) {
			lost = append(lost, i.ID)
		}
	}
	slices.SortStableFunc(lost, func(a, b fleet.InstanceID) int {
		return l.tracks[a].loss.at.Compare(l.tracks[b].loss.at)
	})
	return lost
}

// work has a worker take one step of an instance's life. l.mu is held.
func (l *Loop) work(ctx context.Context, key fleet.GroupKey, a plan.Action, now time.Time) {
	steps := map[plan.Kind]func(context.Context, plan.Action) error{
		plan.Drain: l.drain, plan.Delete: l.remove, plan.Bury: l.bury, plan.Prune: l.prune,
	}
	step, t := steps[a.Kind], l.track(a.ID)
	if step == nil || t.isBusy(now) {
		return
	}
	t.busy = true
	l.workers.Go(func() {
		err := step(ctx, a)
		l.mu.Lock()
		t.done(err, time.Now())
		again := t.failedAgain(err)
		l.mark(key)
		l.mu.Unlock()
		if again {
			return // it was told, and holds
		}
		l.changed(key, a.ID)
		l.fail(ctx, err, key, a.ID)
	})
}

// errand has a worker edit the group itself, one edit at a time. l.mu is held.
func (l *Loop) errand(ctx context.Context, v plan.View, edit func() error) {
	key := v.Group.Key
	p := l.errands[key]
	if p == nil {
		p = &pace{}
		l.errands[key] = p
	}
	if p.isBusy(v.Now) {
		if !p.busy {
			l.wakeAt(key, p.quietUntil)
		}
		return
	}
	p.busy = true
	l.workers.Go(func() {
		err := edit()
		l.mu.Lock()
		p.done(err, time.Now())
		l.mark(key)
		l.mu.Unlock()
		l.changed(key, "")
		if err != nil {
			l.fail(ctx, because(ReasonStorage, fmt.Errorf("edit group %s: %w", key, err)), key, "")
		}
	})
}

// drain begins to move work off an instance.
func (l *Loop) drain(ctx context.Context, a plan.Action) error {
	return l.move(ctx, a.ID, fleet.Draining, a.Reason, func(i *fleet.Instance) {
		i.Drain = &fleet.Drain{Reason: a.Reason, DeleteAt: a.At.UTC()}
	})
}

// remove asks the provider to delete an instance, which its record says first.
// The asker then watches for the end, and the tombstone is another step.
func (l *Loop) remove(ctx context.Context, a plan.Action) error {
	if err := l.move(ctx, a.ID, fleet.Deleting, a.Reason, nil); err != nil {
		return err
	}
	r, ok := l.cfg.Ledger.Get(a.ID)
	if !ok || r.Phase != fleet.Deleting {
		return nil
	}
	l.changed(r.GroupKey(), a.ID) // its streams are to be cut now, not when the provider has answered
	g, _ := l.cfg.Groups.Group(r.GroupKey())
	l.balancer.Deregister(ctx, g, r) // before its machine goes
	l.glance(ctx, r)
	if err := l.deleteVM(ctx, refOf(r)); err != nil {
		return because(ReasonProvider, fmt.Errorf("delete instance %s: %w", a.ID, err))
	}
	l.log.Info("delete accepted", slog.String("instance", string(a.ID)), slog.String("reason", r.Reason))
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	t := l.track(a.ID)
	t.retryAt, t.asks = now.Add(deleteAgain), 0
	l.polls.want(a.ID, now)
	l.signal()
	return nil
}

// glance asks for a VM that is young and was never shown by the provider, just
// before it is deleted. Once shown, its absence is believed; otherwise its end
// could be told from its being slow to appear only after a while.
func (l *Loop) glance(ctx context.Context, r fleet.Instance) {
	l.mu.Lock()
	t := l.track(r.ID)
	young := !t.seen && time.Now().Before(l.attempted(r, t).Add(believeNotFound))
	l.mu.Unlock()
	if !young {
		return
	}
	got := l.get(ctx, refOf(r))
	if got.err != nil {
		return // it only costs time
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observe(r, got.sight, time.Now())
}

func (l *Loop) deleteVM(ctx context.Context, ref provider.Ref) error {
	free, err := l.deletes.take(ctx)
	if err != nil {
		return err
	}
	defer free()
	return l.requestDelete(ctx, ref)
}

// requestDelete is for who holds a slot already.
func (l *Loop) requestDelete(ctx context.Context, ref provider.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, l.requestTimeout())
	defer cancel()
	return l.cfg.Provider.Delete(ctx, ref)
}

// bury leaves a tombstone of an instance of which nothing is left.
func (l *Loop) bury(ctx context.Context, a plan.Action) error {
	return l.move(ctx, a.ID, fleet.Deleted, a.Reason, nil)
}

// prune removes a tombstone.
func (l *Loop) prune(ctx context.Context, a plan.Action) error {
	free, err := l.writes.take(ctx)
	if err != nil {
		return err
	}
	defer free()
	if err := l.cfg.Ledger.Remove(ctx, a.ID); err != nil {
		return because(ReasonStorage, fmt.Errorf("remove the record of instance %s: %w", a.ID, err))
	}
	return nil
}

// move writes an instance's next phase, with the reason that is kept for it. A
// record that is there already, or beyond, is left alone.
func (l *Loop) move(ctx context.Context, id fleet.InstanceID, to fleet.Phase, reason string, also func(*fleet.Instance)) error {
	now := time.Now().UTC()
	r, err := l.update(ctx, id, func(i *fleet.Instance) error {
		if !i.Phase.CanMove(to) {
			return errMovedOn
		}
		i.Phase, i.Reason = to, reason
		if to == fleet.Deleted {
			i.DeletedAt = &now
		}
		if also != nil {
			also(i)
		}
		return nil
	})
	if err != nil {
		l.mu.Lock()
		l.track(id).recordDoubtful = true // it may have moved all the same
		l.mu.Unlock()
		return fmt.Errorf("move instance %s to %s: %w", id, to, err)
	}
	if r.Phase == to {
		l.log.Info("instance moved", slog.String("instance", string(id)), slog.String("phase", string(to)), slog.String("reason", r.Reason))
	}
	return nil
}

// update changes a record. One that has moved on is no error.
func (l *Loop) update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	free, err := l.writes.take(ctx)
	if err != nil {
		return fleet.Instance{}, err
	}
	defer free()
	r, err := l.cfg.Ledger.Update(ctx, id, change)
	switch {
	case errors.Is(err, errMovedOn):
		return fleet.Instance{}, nil
	case err != nil:
		return fleet.Instance{}, because(ReasonStorage, err)
	default:
		return r, nil
	}
}
