package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file is what a new leader knows of creates before its time: as much as the
// records tell.

// past is something that became of a create before this term.
type past struct {
	at   time.Time
	take func(*streak)
}

// seed takes over from the records what became of the creates of former terms, and
// returns the instances that have settled.
func (p *pacing) seed(records []fleet.Instance, now time.Time) (settled []fleet.InstanceID) {
	settings, groups, pasts := p.cfg.Groups.Settings(), map[fleet.GroupKey]fleet.Group{}, map[fleet.GroupKey][]past{}
	for n := range records {
		r := &records[n]
		key := r.GroupKey()
		g, known := groups[key]
		if !known {
			g, _ = p.cfg.Groups.Group(key)
			g.Key = key
			groups[key] = g
		}
		if r.OnDemand || r.Hashes.Infra != g.Hashes.Infra {
			continue
		}
		of, hasSettled := p.pastOf(r, g, settings, now)
		pasts[key] = append(pasts[key], of...)
		if hasSettled {
			settled = append(settled, r.ID)
		}
	}
	for key, all := range pasts {
		slices.SortStableFunc(all, func(a, b past) int { return a.at.Compare(b.at) })
		p.change(groups[key], func(s *streak) {
			for _, one := range all {
				one.take(s)
			}
		})
	}
	return settled
}

// pastOf is what a record tells of its create, as far as that is certain: of a deletion
// it does not say since when.
func (p *pacing) pastOf(r *fleet.Instance, g fleet.Group, s plan.Settings, now time.Time) (all []past, settled bool) {
	began := r.CreatedAt
	if at := r.Provider.CreateAttemptedAt; at != nil {
		began = *at
	}
	if r.Provider.ID != "" {
		all = append(all, past{began, func(s *streak) { s.accept(r.ID, began, g.Size) }})
	}
	least, most := lived(r, g, now)
	switch {
	case plan.Settled(r, s, least):
		at := plan.SettlesAt(r, s)
		return append(all, past{at, func(s *streak) { s.settle(r.ID, at, g.Size) }}), true
	case plan.Failure(r.Reason) && !plan.Settled(r, s, most):
		f := failedCreate{id: r.ID, began: began, at: most, message: cmp.Or(r.Failure, fmt.Sprintf("instance %s: %s", r.ID, r.Reason))}
		f.young, f.reason = r.Reason != plan.ReasonCreateFailed, reasonOf(r.Reason)
		all = append(all, past{most, func(s *streak) { s.fail(f, p.backoff) }})
	}
	return all, false
}

// lived is until when an instance lived at least and at most: until its drain began, if
// it had one, by the group's present timeout. Otherwise the deletion is taken to have
// lasted no longer than one that is reported, if it was a failure.
func lived(r *fleet.Instance, g fleet.Group, now time.Time) (least, most time.Time) {
	most = now
	if r.DeletedAt != nil {
		most = *r.DeletedAt
	}
	if r.Drain != nil {
		if began := r.Drain.DeleteAt.Add(-g.DrainTimeout); began.Before(most) {
			most = began
		}
		return most, most
	}
	switch failed := plan.Failure(r.Reason); {
	case failed && r.DeletedAt == nil:
		return r.CreatedAt, most
	case failed:
		return most.Add(-stuckAfter), most
	default:
		return most, most
	}
}

// reasonOf is the reason of a failure by that for which the instance ends.
func reasonOf(planned string) string {
	planned, _, _ = strings.Cut(planned, ":")
	switch planned {
	case plan.ReasonCreateFailed:
		return ReasonProvider
	case plan.ReasonRegistrationTimeout:
		return ReasonNotRegistered
	case plan.ReasonUnhealthy:
		return ReasonSilent
	default:
		return ReasonDied
	}
}
