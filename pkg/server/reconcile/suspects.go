package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file is about the VMs that a list leaves in doubt: each is asked about.

// maxLeaving is how many VMs on their way out one sweep asks about. The next goes on
// where it ended.
const maxLeaving = 200

// suspects are the VMs that a list gives reason to ask about.
type suspects struct {
	refs     []provider.Ref
	unlisted map[fleet.InstanceID]bool // those that it did not show although they are to be there
}

// suspect returns whom a census makes suspect. All that are to be there are asked
// about, however many, since no part of them shows how many are absent at once.
func (s *sweeper) suspect(c census) suspects {
	found := suspects{unlisted: map[fleet.InstanceID]bool{}}
	underWay := s.creates.underWay()
	var leaving []provider.Ref
	for _, r := range c.missing {
		switch {
		case r.Phase == fleet.Pending && r.Provider.ID == "", underWay[r.ID]: // its create answers for itself
		case r.Phase == fleet.Deleting:
			leaving = append(leaving, refOf(r))
		default:
			found.refs = append(found.refs, refOf(r))
			found.unlisted[r.ID] = true
		}
	}
	for _, r := range c.down {
		if unmade := r.Phase == fleet.Pending && r.Provider.ID == ""; !unmade && !underWay[r.ID] {
			found.refs = append(found.refs, refOf(r))
		}
	}
	found.refs = append(found.refs, s.turn(leaving)...)
	return found
}

func (s *sweeper) turn(leaving []provider.Ref) []provider.Ref {
	if len(leaving) <= maxLeaving {
		return leaving
	}
	slices.SortFunc(leaving, func(a, b provider.Ref) int { return cmp.Compare(a.ID, b.ID) })
	s.mu.Lock()
	defer s.mu.Unlock()
	from, _ := slices.BinarySearchFunc(leaving, s.nextLeaving, func(r provider.Ref, id fleet.InstanceID) int { return cmp.Compare(r.ID, id) })
	round := slices.Concat(leaving[from:], leaving[:from])
	s.nextLeaving = round[maxLeaving].ID
	return round[:maxLeaving]
}

// confirm asks about what a list only hinted at. Where one answer is not enough, or
// none came, the poller repeats the question.
func (s *sweeper) confirm(ctx context.Context, found suspects) {
	var records []fleet.Instance
	var answers, failed []answer
	for _, a := range s.cloud.getAll(ctx, found.refs) {
		if a.err != nil {
			a.unlisted = found.unlisted[a.id]
			failed = append(failed, a)
		}
		if r, ok := s.cfg.Ledger.Get(a.id); ok {
			records, answers = append(records, r), append(answers, a)
		}
	}
	changed := s.observed.seeAll(records, answers, time.Now())
	for _, r := range records {
		if b := s.observed.get(r.ID); b.vm != plan.VMGone && !b.askAt.IsZero() {
			s.again.askAt(r.ID, b.askAt)
		}
	}
	for _, a := range failed {
		s.again.askAt(a.id, time.Now().Add(pollBackoff().Delay(1)))
	}
	if len(failed) > 0 { // once, not for every VM
		err := fmt.Errorf("ask for the state of %d VMs, instance %s among them: %w", len(failed), failed[0].id, failed[0].err)
		s.fail(ctx, because(ReasonProvider, err), fleet.GroupKey{}, "")
	}
	for _, r := range changed {
		s.cfg.Changed(r.GroupKey(), r.ID)
	}
}
