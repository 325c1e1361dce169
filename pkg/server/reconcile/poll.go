package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/schedule"
)

const (
	// recheckCount is how often a VM is polled again while its agent is disconnected, since
	// the provider may report a killed machine as running at first. With recheckBackoff
	// this takes about two seconds; after that missed reports decide.
	recheckCount = 8
	// Polls that are due within this time are sent in one call.
	urgentTogether, deletionsTogether = 5 * time.Millisecond, 50 * time.Millisecond
)

func recheckBackoff() retry.Backoff {
	return retry.Backoff{First: 10 * time.Millisecond, Limit: time.Second}
}
func pollBackoff() retry.Backoff {
	return retry.Backoff{First: 250 * time.Millisecond, Limit: 5 * time.Second}
}

// poller polls the VMs of single instances, with at most one call per VM at a time. It never
// lists, since a list may take too long. Urgent polls have their own calls, so that none waits
// behind the polling of a deletion. It is safe for concurrent use.
type poller struct {
	ledger    Ledger
	schedule  *schedule.Schedule
	observed  *observe.State
	cloud     *paced.Provider
	writeBack *writeBack
	reports   *reporter
	log       *slog.Logger

	mu                sync.Mutex
	urgent, deletions questions
	failing           map[fleet.InstanceID]bool // instances whose last poll failed
}

// questions are the polls that are due or in progress.
type questions struct {
	urgent   bool
	together time.Duration
	due      schedule.Moments[fleet.InstanceID]
	asked    map[fleet.InstanceID]*asked
}

// asked is the state of polling an instance.
type asked struct {
	times int  // polls since the triggering event
	open  bool // a poll is in progress
	anew  bool // triggered again since that poll was sent
}

func newPoller(l *Loop) *poller {
	p := &poller{
		ledger: l.cfg.Ledger, schedule: l.schedule, observed: l.observed, cloud: l.cloud, writeBack: l.writeBack, reports: l.reports,
		log: l.log, failing: map[fleet.InstanceID]bool{},
	}
	p.urgent = questions{urgent: true, together: urgentTogether}
	p.deletions = questions{together: deletionsTogether}
	for _, q := range []*questions{&p.urgent, &p.deletions} {
		q.asked = map[fleet.InstanceID]*asked{}
	}
	return p
}

// next returns when sendDue has something to do; zero: not without an event.
func (p *poller) next() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return plan.Sooner(p.urgent.due.Next(), p.deletions.due.Next())
}

// pollNow polls an active or draining instance urgently. A deleting one is polled already.
func (p *poller) pollNow(r fleet.Instance) {
	if r.Phase.Active() || r.Phase == fleet.Draining {
		p.raise(&p.urgent, r.ID, time.Now())
	}
}

// poll polls a VM until it is gone. The first poll is delayed so that it can be batched.
func (p *poller) poll(id fleet.InstanceID, now time.Time) {
	p.raise(&p.deletions, id, now.Add(deletionsTogether))
}

func (p *poller) raise(q *questions, id fleet.InstanceID, at time.Time) {
	p.mu.Lock()
	if a := q.asked[id]; a != nil && a.open {
		a.anew = true
	} else {
		delete(q.asked, id)
		q.due.Add(id, at)
	}
	p.mu.Unlock()
	p.schedule.Wake()
}

// sendDue sends the polls that are due.
func (p *poller) sendDue(ctx context.Context, now time.Time) {
	for _, q := range []*questions{&p.urgent, &p.deletions} {
		if refs := p.due(q, now); len(refs) > 0 {
			p.cloud.Poll(ctx, refs, q.urgent, func(got paced.Answer) { p.answered(ctx, q, got) })
		}
	}
}

func (p *poller) due(q *questions, now time.Time) (refs []provider.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next := q.due.Next(); next.IsZero() || next.After(now) {
		return nil
	}
	for _, id := range q.due.Take(now.Add(q.together)) {
		r, ok := p.ledger.Get(id)
		if !ok || r.Phase == fleet.Deleted {
			p.forget(q, id)
			continue
		}
		if q.asked[id] == nil {
			q.asked[id] = &asked{}
		}
		q.asked[id].open = true
		q.asked[id].times++
		refs = append(refs, provider.RefOf(r))
	}
	slices.SortFunc(refs, func(a, b provider.Ref) int { return cmp.Compare(a.ID, b.ID) })
	return refs
}

func (p *poller) forget(q *questions, id fleet.InstanceID) {
	delete(q.asked, id)
	delete(p.failing, id)
}

// answered applies one answer and schedules the next poll if needed.
func (p *poller) answered(ctx context.Context, q *questions, a paced.Answer) {
	now := time.Now()
	r, ok := p.ledger.Get(a.ID)
	var news []observe.News
	if ok && a.Err == nil {
		news = p.observed.See(now, answerAbout(r, a))
		mark(p.schedule, now, news...)
	}
	began := p.pollAgain(q, r, a, now)
	p.writeBack.identify(ctx, r)
	p.schedule.Wake()
	p.reports.tell(news...)
	if began { // once, not for every VM and every retry
		failed := fmt.Errorf("describe VMs, including that of instance %s: %w", a.ID, a.Err)
		p.reports.fail(ctx, problems.Because(problems.ReasonProvider, failed), fleet.GroupKey{}, "")
	} else if a.Err != nil {
		p.log.Debug("status call failed again", slog.String("instance", string(a.ID)), slog.Any("error", a.Err))
	}
}

// pollAgain schedules the next poll of a VM if needed. It reports whether this is the first
// failure while no other VM's polls fail. r is zero if the record is gone.
func (p *poller) pollAgain(q *questions, r fleet.Instance, a paced.Answer, now time.Time) (failureBegan bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.observed.Get(a.ID) // under the lock, so that a later change by a sweep triggers a later poll
	began := a.Err != nil && len(p.failing) == 0
	asked := q.asked[a.ID]
	asked.open = false
	wait, again := nextPoll(r, known, asked.times, a.Err, now)
	if asked.anew {
		asked.times, asked.anew, wait, again = 0, false, 0, true
	}
	if r.ID == "" || !again {
		p.forget(q, a.ID)
		return began
	}
	q.due.Add(a.ID, now.Add(wait))
	if a.Err != nil {
		p.failing[a.ID] = true
	} else {
		delete(p.failing, a.ID)
	}
	return began
}

// pollAt schedules an urgent poll at the given time. It is a no-op while an urgent poll is in
// progress, since its answer schedules the next one.
func (p *poller) pollAt(id fleet.InstanceID, at time.Time) {
	p.mu.Lock()
	if a := p.urgent.asked[id]; a == nil || !a.open {
		p.urgent.due.Add(id, at)
	}
	p.mu.Unlock()
	p.schedule.Wake()
}

// nextPoll returns whether, and after how long, to poll an instance's VM again, given the number
// of polls so far and the error of the last one.
func nextPoll(r fleet.Instance, known observe.Snapshot, asked int, err error, now time.Time) (time.Duration, bool) {
	switch {
	case err == nil && known.VM == plan.VMGone:
		return 0, false
	case err == nil && !known.ConfirmAt.IsZero() && (r.Phase != fleet.Deleting || known.Absent):
		return known.ConfirmAt.Sub(now), true
	case r.Phase == fleet.Deleting:
		return pollBackoff().Delay(asked), true
	case !known.Doubtful:
		return 0, false
	case err != nil:
		return pollBackoff().Delay(asked), true
	case known.VM == plan.VMDown:
		return 0, false
	case asked <= recheckCount:
		return recheckBackoff().Delay(asked), true
	default:
		return 0, false
	}
}

// watch watches the provider's events until ctx ends. After a broken watch it lists, since
// events were missed.
func (s *sweeper) watch(ctx context.Context, w provider.Watcher) {
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := w.Watch(ctx, s.event)
		if ctx.Err() != nil || errors.Is(err, provider.ErrUnsupported) {
			return
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		failures++
		if failures == 1 && err != nil {
			s.reports.fail(ctx, problems.Because(problems.ReasonProvider, fmt.Errorf("watch the provider: %w", err)), fleet.GroupKey{}, "")
		}
		if retry.Wait(ctx, stepBackoff().Delay(failures)) != nil {
			return
		}
		s.workers.Go(func() { s.catchUp(ctx) })
	}
}

// catchUp lists the VMs after a broken watch. It ignores VMs without a record; the sweep handles
// those.
func (s *sweeper) catchUp(ctx context.Context) {
	asked := time.Now()
	vms, err := s.cloud.List(ctx)
	if err != nil {
		return // the next sweep retries
	}
	c := census.Compare(s.ledger.Instances(), s.claims(), vms)
	s.confirm(ctx, s.absorb(ctx, c, asked))
}

// event applies one event. VMs without a record are ignored.
func (s *sweeper) event(e provider.Event) {
	r, ok := s.ledger.Get(e.VM.ID)
	if !ok || e.VM.ID == "" || r.Provider.ID != "" && r.Provider.ID != e.VM.ProviderID {
		return
	}
	now := time.Now()
	news := s.observed.See(now, observe.Answer{Record: r, VM: e.VM, Found: true, Asked: now})
	mark(s.schedule, now, news...)
	s.reports.tell(news...)
}
