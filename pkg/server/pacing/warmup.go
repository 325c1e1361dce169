package pacing

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file rebuilds the failure windows from the records when a term begins.

// longestDelete is how long a deletion takes at most, if nothing is wrong with it.
const longestDelete = 10 * time.Minute

// past is an outcome of a create before this term; without failed and take an instance settled.
type past struct {
	at       time.Time
	accepted bool // which tells nothing of early ends
	failed   *Failure
	take     func(*failureWindow)
}

// WarmUp rebuilds the failure windows from the records, and returns the instances that have
// settled. desired returns the desired state of a group.
func (p *Pacer) WarmUp(
	records []fleet.Instance, desired func(fleet.GroupKey) fleet.Group, settings plan.Settings, now time.Time,
) (settled []fleet.InstanceID) {
	groups, of := map[fleet.GroupKey]fleet.Group{}, map[fleet.GroupKey][]*fleet.Instance{}
	for n := range records {
		r := &records[n]
		key := r.GroupKey()
		g, known := groups[key]
		if !known {
			g = desired(key)
			groups[key] = g
		}
		if !r.OnDemand && r.Hashes.Infra == g.Hashes.Infra {
			of[key] = append(of[key], r)
		}
	}
	for key, all := range of {
		settled = append(settled, p.warmUpGroup(groups[key], all, settings, now)...)
	}
	return settled
}

// warmUpGroup is warmUp for one group's records that have its current Infra hash.
func (p *Pacer) warmUpGroup(g fleet.Group, records []*fleet.Instance, s plan.Settings, now time.Time) (settled []fleet.InstanceID) {
	var pasts []past
	for _, r := range records {
		of, hasSettled := pastOf(r, g, s, now)
		pasts = append(pasts, of...)
		if hasSettled {
			settled = append(settled, r.ID)
		}
	}
	slices.SortStableFunc(pasts, func(a, b past) int { return a.at.Compare(b.at) })
	p.change(g, func(window *failureWindow) {
		for _, one := range pasts {
			living := func() []plan.Life { return livingAt(records, g, one.at, now) }
			if window.settling && !one.accepted { // as the leader did at that time
				window.survive(living(), s, g.Size, one.at)
			}
			switch {
			case one.failed != nil:
				window.fail([]Failure{*one.failed}, scene{g.Size, s.Settle, living, p.wait})
			case one.take != nil:
				one.take(window)
			}
		}
	})
	return settled
}

// livingAt returns the registered instances that were alive at the given time, or ended then, by
// their records.
func livingAt(records []*fleet.Instance, g fleet.Group, at, now time.Time) (all []plan.Life) {
	for _, r := range records {
		if r.RegisteredAt == nil || !r.RegisteredAt.Before(at) {
			continue
		}
		if !r.Phase.Active() && plan.LostBy(r, g.DrainTimeout, now).Before(at) {
			continue
		}
		all = append(all, plan.Life{ID: r.ID, Age: at.Sub(*r.RegisteredAt)})
	}
	return all
}

// createdAt returns when the create of an instance began, by its record.
func createdAt(r *fleet.Instance) time.Time {
	if at := r.Provider.CreateAttemptedAt; at != nil {
		return *at
	}
	return r.CreatedAt
}

// pastOf returns the outcomes of an instance's create that are certain from its record, and
// whether it has settled. A record does not say when a deletion began.
func pastOf(r *fleet.Instance, g fleet.Group, s plan.Settings, now time.Time) (all []past, settled bool) {
	began := createdAt(r)
	if r.Provider.ID != "" {
		all = append(all, past{at: began, accepted: true, take: func(s *failureWindow) { s.accept(r.ID, began, g.Size) }})
	}
	least, most := lived(r, g, now)
	switch {
	case plan.Settled(r, s, least):
		return append(all, past{at: plan.SettlesAt(r, s)}), true
	case plan.Announced(r.Reason) && r.DeletedAt != nil:
		all = append(all, past{at: most, take: func(s *failureWindow) { s.done(r.ID, most, g.Size) }})
	case plan.Failure(r.Reason) && !plan.Settled(r, s, most):
		f := Failure{ID: r.ID, Began: began, At: most, Message: cmp.Or(r.Failure, fmt.Sprintf("instance %s: %s", r.ID, r.Reason))}
		f.Young, f.Reason = r.Reason != plan.ReasonCreateFailed, ReasonFor(r.Reason)
		if r.RegisteredAt != nil {
			f.Age = max(0, most.Sub(*r.RegisteredAt))
		}
		all = append(all, past{at: most, failed: &f})
	}
	return all, false
}

// lived returns the earliest and the latest time at which an instance may have ended. If it was
// drained, both are the start of the drain. Otherwise, for a failed instance, the deletion is assumed
// to have taken at most longestDelete.
func lived(r *fleet.Instance, g fleet.Group, now time.Time) (least, most time.Time) {
	most = plan.LostBy(r, g.DrainTimeout, now)
	switch failed := plan.Failure(r.Reason); {
	case r.Drain != nil:
		return most, most
	case failed && r.DeletedAt == nil:
		return r.CreatedAt, most
	case failed:
		return most.Add(-longestDelete), most
	default:
		return most, most
	}
}
