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
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/plan"
)

const (
	// recheckCount: right after a machine was killed its provider may still
	// call it running, so while the agent stays away it is asked again this
	// often, first after 10 ms, then after twice that each time, up to 1 s;
	// some two seconds in all. After that it is left to the missed reports.
	recheckCount = 8
	// What is due so soon after what is due now is asked together with it: the
	// answers of one call are taken over one after the other.
	urgentTogether, deletionsTogether = 5 * time.Millisecond, 50 * time.Millisecond
)

func recheckBackoff() retry.Backoff {
	return retry.Backoff{First: 10 * time.Millisecond, Limit: time.Second}
}
func pollBackoff() retry.Backoff {
	return retry.Backoff{First: 250 * time.Millisecond, Limit: 5 * time.Second}
}

// poller asks the provider about the VMs of single instances, one question
// about each at a time. It never lists: a list may take longer than anybody can
// wait for a status. Urgent questions have calls of their own, so that none ever
// waits behind the polling of a deletion. It is safe for concurrent use.
type poller struct {
	*term

	mu                sync.Mutex
	urgent, deletions questions
	failing           map[fleet.InstanceID]bool // those whose last question got no answer
}

// questions are those that are to be asked, or are on their way.
type questions struct {
	calls    *calls[answer]
	together time.Duration
	due      moments[fleet.InstanceID]
	asked    map[fleet.InstanceID]*asked
}

// asked is how an instance was asked about.
type asked struct {
	times int  // since what gave rise to it
	open  bool // no answer yet
	anew  bool // it came up again since the open question was sent
}

func newPoller(t *term) *poller {
	p := &poller{term: t, failing: map[fleet.InstanceID]bool{}}
	p.urgent = questions{calls: t.cloud.urgent, together: urgentTogether}
	p.deletions = questions{calls: t.cloud.gets, together: deletionsTogether}
	for _, q := range []*questions{&p.urgent, &p.deletions} {
		q.due, q.asked = moments[fleet.InstanceID]{}, map[fleet.InstanceID]*asked{}
	}
	return p
}

// next is when ask has something to do; zero: not before something happens.
func (p *poller) next() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sooner(p.urgent.due.next(), p.deletions.due.next())
}

// askNow raises an urgent question about an instance that is to be there; the
// end of one that is being deleted is polled for.
func (p *poller) askNow(r fleet.Instance) {
	if r.Phase.Active() || r.Phase == fleet.Draining {
		p.raise(&p.urgent, r.ID, time.Now())
	}
}

// poll asks for a VM until it is gone, at first when others may have joined it.
func (p *poller) poll(id fleet.InstanceID, now time.Time) {
	p.raise(&p.deletions, id, now.Add(deletionsTogether))
}

func (p *poller) raise(q *questions, id fleet.InstanceID, at time.Time) {
	p.mu.Lock()
	if a := q.asked[id]; a != nil && a.open {
		a.anew = true
	} else {
		delete(q.asked, id)
		q.due.add(id, at)
	}
	p.mu.Unlock()
	p.schedule.signal()
}

// ask sends the questions that are due.
func (p *poller) ask(ctx context.Context, now time.Time) {
	for _, q := range []*questions{&p.urgent, &p.deletions} {
		if refs := p.take(q, now); len(refs) > 0 {
			q.calls.add(ctx, refs, func(_ int, a answer) { p.answered(ctx, q, a) })
		}
	}
}

func (p *poller) take(q *questions, now time.Time) (refs []provider.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next := q.due.next(); next.IsZero() || next.After(now) {
		return nil
	}
	for id, at := range q.due {
		if at.After(now.Add(q.together)) {
			continue
		}
		delete(q.due, id)
		r, ok := p.cfg.Ledger.Get(id)
		if !ok || r.Phase == fleet.Deleted {
			p.forget(q, id)
			continue
		}
		if q.asked[id] == nil {
			q.asked[id] = &asked{}
		}
		q.asked[id].open = true
		q.asked[id].times++
		refs = append(refs, refOf(r))
	}
	slices.SortFunc(refs, func(a, b provider.Ref) int { return cmp.Compare(a.ID, b.ID) })
	return refs
}

func (p *poller) forget(q *questions, id fleet.InstanceID) {
	delete(q.asked, id)
	delete(p.failing, id)
}

// answered takes over one answer and asks again where that makes sense.
func (p *poller) answered(ctx context.Context, q *questions, a answer) {
	now := time.Now()
	r, ok := p.cfg.Ledger.Get(a.id)
	changed := ok && a.err == nil && p.observed.see(r, a, now)
	began := p.askAgain(q, r, a, now)
	p.schedule.signal()
	if changed {
		p.cfg.Changed(r.GroupKey(), r.ID)
	}
	if began { // once, not for every VM and every repetition
		failed := fmt.Errorf("ask for the state of VMs, instance %s among them: %w", a.id, a.err)
		p.fail(ctx, because(ReasonProvider, failed), fleet.GroupKey{}, "")
	} else if a.err != nil {
		p.log.Debug("status call failed again", slog.String("instance", string(a.id)), slog.Any("error", a.err))
	}
}

// askAgain has a VM asked about once more, if that makes sense. It reports
// whether this is the first question that got no answer after all had one. The
// record is zero when it is gone.
func (p *poller) askAgain(q *questions, r fleet.Instance, a answer, now time.Time) (failureBegan bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.observed.get(a.id) // under the lock: what a sweep stores later, it asks for later too
	began := a.err != nil && len(p.failing) == 0
	asked := q.asked[a.id]
	asked.open = false
	wait, again := askedAgain(r, &known, asked.times, a.err, now)
	if asked.anew {
		asked.times, asked.anew, wait, again = 0, false, 0, true
	}
	if r.ID == "" || !again {
		p.forget(q, a.id)
		return began
	}
	q.due.add(a.id, now.Add(wait))
	if a.err != nil {
		p.failing[a.id] = true
	} else {
		delete(p.failing, a.id)
	}
	return began
}

// askAt raises an urgent question that is due later, unless the answer to an open
// one will.
func (p *poller) askAt(id fleet.InstanceID, at time.Time) {
	p.mu.Lock()
	if a := p.urgent.asked[id]; a == nil || !a.open {
		p.urgent.due.add(id, at)
	}
	p.mu.Unlock()
	p.schedule.signal()
}

// askedAgain says whether, and after how long, an instance's VM is asked about
// once more, after so many questions, of which the last ended with err.
func askedAgain(r fleet.Instance, known *observation, asked int, err error, now time.Time) (time.Duration, bool) {
	switch {
	case err == nil && known.vm == plan.VMGone:
		return 0, false
	case err == nil && !known.askAt.IsZero() && (r.Phase != fleet.Deleting || known.absent()):
		return known.askAt.Sub(now), true
	case r.Phase == fleet.Deleting:
		return pollBackoff().Delay(asked), true
	case !known.doubtful():
		return 0, false
	case err != nil:
		return pollBackoff().Delay(asked), true
	case known.vm == plan.VMDown:
		return 0, false
	case asked <= recheckCount:
		return recheckBackoff().Delay(asked), true
	default:
		return 0, false
	}
}

// watch hears of changes as the provider sees them, again and again until ctx
// ends. After a break it lists, since changes were missed.
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
			s.fail(ctx, because(ReasonProvider, fmt.Errorf("watch the provider: %w", err)), fleet.GroupKey{}, "")
		}
		if retry.Wait(ctx, stepBackoff().Delay(failures)) != nil {
			return
		}
		s.workers.Go(func() { s.catchUp(ctx) })
	}
}

// catchUp learns what a broken watch missed. It looks at instances only; VMs
// without a record are the sweep's.
func (s *sweeper) catchUp(ctx context.Context) {
	asked := time.Now()
	vms, err := s.cloud.list(ctx)
	if err != nil {
		return // the next sweep lists again
	}
	c := compare(s.cfg.Ledger.Instances(), s.claims(), vms)
	s.confirm(ctx, s.absorb(ctx, c, asked))
}

// event takes over one change. A VM that no record names is no news here.
func (s *sweeper) event(e provider.Event) {
	r, ok := s.cfg.Ledger.Get(e.VM.ID)
	if !ok || e.VM.ID == "" || r.Provider.ID != "" && r.Provider.ID != e.VM.ProviderID {
		return
	}
	now := time.Now()
	if s.observed.see(r, answer{id: r.ID, vm: e.VM, found: true, asked: now}, now) {
		s.cfg.Changed(r.GroupKey(), r.ID)
	}
}
