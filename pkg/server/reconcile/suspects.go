package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// confirm polls the suspects once. If one answer is not enough, or the call failed, the poller
// polls again.
func (s *sweeper) confirm(ctx context.Context, found census.Suspects) {
	var answers []observe.Answer
	var failed []paced.Answer
	for _, got := range s.cloud.Get(ctx, found.Refs...) {
		if got.Err != nil {
			failed = append(failed, got)
		}
		if r, ok := s.ledger.Get(got.ID); ok {
			a := answerAbout(r, got)
			a.Unlisted = found.Unlisted[r.ID]
			answers = append(answers, a)
		}
	}
	now := time.Now()
	news := s.observed.See(now, answers...)
	mark(s.schedule, now, news...)
	for _, a := range answers {
		if known := s.observed.Get(a.Record.ID); known.VM != plan.VMGone && !known.ConfirmAt.IsZero() {
			s.again.pollAt(a.Record.ID, known.ConfirmAt)
		}
	}
	for _, a := range failed {
		s.again.pollAt(a.ID, time.Now().Add(pollBackoff().Delay(1)))
	}
	if len(failed) > 0 { // once, not for every VM
		err := fmt.Errorf("describe %d VMs, including that of instance %s: %w", len(failed), failed[0].ID, failed[0].Err)
		s.reports.fail(ctx, problems.Because(problems.ReasonProvider, err), fleet.GroupKey{}, "")
	}
	s.reports.tell(news...)
}
