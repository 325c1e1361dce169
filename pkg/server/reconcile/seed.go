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

// replayed is how many failures of a group are weighed against those that lived beside
// them: enough for the longest wait. Of earlier ones it is remembered that there were.
const replayed = 40

// past is something that became of a create before this term.
type past struct {
	at     time.Time
	failed *failedCreate // nil: take says what it was
	take   func(*streak)
}

// seed takes over from the records what became of the creates of former terms, and
// returns the instances that have settled.
func (p *pacing) seed(records []fleet.Instance, now time.Time) (settled []fleet.InstanceID) {
	settings, groups, of := p.cfg.Groups.Settings(), map[fleet.GroupKey]fleet.Group{}, map[fleet.GroupKey][]*fleet.Instance{}
	for n := range records {
		r := &records[n]
		key := r.GroupKey()
		g, known := groups[key]
		if !known {
			g, _ = p.cfg.Groups.Group(key)
			g.Key = key
			groups[key] = g
		}
		if !r.OnDemand && r.Hashes.Infra == g.Hashes.Infra {
			of[key] = append(of[key], r)
		}
	}
	for key, all := range of {
		settled = append(settled, p.seedGroup(groups[key], all, settings, now)...)
	}
	return settled
}

// seedGroup does so for one group's records that have its infra hash.
func (p *pacing) seedGroup(g fleet.Group, records []*fleet.Instance, s plan.Settings, now time.Time) (settled []fleet.InstanceID) {
	var pasts []past
	for _, r := range records {
		of, hasSettled := pastOf(r, g, s, now)
		pasts = append(pasts, of...)
		if hasSettled {
			settled = append(settled, r.ID)
		}
	}
	slices.SortStableFunc(pasts, func(a, b past) int { return a.at.Compare(b.at) })
	failures := 0
	for _, one := range pasts {
		if one.failed != nil {
			failures++
		}
	}
	p.change(g, func(streak *streak) {
		for _, one := range pasts {
			if one.failed == nil {
				one.take(streak)
				continue
			}
			if failures--; failures >= replayed {
				streak.note(*one.failed)
				continue
			}
			streak.fail([]failedCreate{*one.failed}, livingAt(records, g, one.at, now), p.backoff)
		}
	})
	return settled
}

// livingAt are the instances that lived, registered, at a moment, as far as their
// records say.
func livingAt(records []*fleet.Instance, g fleet.Group, at, now time.Time) (all []plan.Life) {
	for _, r := range records {
		if r.RegisteredAt == nil || !r.RegisteredAt.Before(at) {
			continue
		}
		if _, most := lived(r, g, now); !r.Phase.Active() && !most.After(at) {
			continue
		}
		all = append(all, plan.Life{ID: r.ID, Began: createdAt(r), Age: at.Sub(*r.RegisteredAt)})
	}
	return all
}

// createdAt is when the create of an instance began, by its record.
func createdAt(r *fleet.Instance) time.Time {
	if at := r.Provider.CreateAttemptedAt; at != nil {
		return *at
	}
	return r.CreatedAt
}

// pastOf is what a record tells of its create, as far as that is certain: of a deletion
// it does not say since when.
func pastOf(r *fleet.Instance, g fleet.Group, s plan.Settings, now time.Time) (all []past, settled bool) {
	began := createdAt(r)
	if r.Provider.ID != "" {
		all = append(all, past{at: began, take: func(s *streak) { s.accept(r.ID, began, g.Size) }})
	}
	least, most := lived(r, g, now)
	switch {
	case plan.Settled(r, s, least):
		at := plan.SettlesAt(r, s)
		return append(all, past{at: at, take: func(s *streak) { s.prove(r.ID, at, g.Size) }}), true
	case plan.Failure(r.Reason) && !plan.Settled(r, s, most):
		f := failedCreate{id: r.ID, began: began, at: most, message: cmp.Or(r.Failure, fmt.Sprintf("instance %s: %s", r.ID, r.Reason))}
		f.young, f.reason = r.Reason != plan.ReasonCreateFailed, reasonOf(r.Reason)
		if r.RegisteredAt != nil {
			f.age = max(0, most.Sub(*r.RegisteredAt))
		}
		all = append(all, past{at: most, failed: &f})
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
