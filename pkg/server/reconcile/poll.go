package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/plan"
)

const (
	// listAbove is how many instances are asked about one by one at most; above
	// that one List answers for all.
	listAbove = 10
	// statusTimeout bounds one status call, since others wait for it. It is repeated.
	statusTimeout = 5 * time.Second
	// recheckCount: right after a machine was killed its provider may still
	// call it running, so while the agent stays away it is asked again this
	// often, first after 10 ms, then after twice that each time, up to 1 s;
	// some two seconds in all. After that it is left to the missed reports.
	recheckCount = 8
)

func recheckBackoff() retry.Backoff {
	return retry.Backoff{First: 10 * time.Millisecond, Limit: time.Second}
}
func pollBackoff() retry.Backoff {
	return retry.Backoff{First: 250 * time.Millisecond, Limit: 5 * time.Second}
}

// poller asks the provider about the VMs of single instances. Questions are
// collected: one call is in flight at a time, and the next covers every
// instance that came up meanwhile, so that a thousand broken streams cost two
// calls rather than a thousand. Urgent questions are collected apart, so that
// none ever waits behind the polling of a deletion. It is safe for concurrent
// use.
type poller struct {
	*term

	mu                sync.Mutex
	urgent, deletions questions
	asked             map[fleet.InstanceID]int // questions since what gave rise to them
	failing           bool                     // the last call failed
}

// questions are those that one call at a time answers.
type questions struct {
	due    moments[fleet.InstanceID]
	asking bool
}

func newPoller(t *term) *poller {
	due := moments[fleet.InstanceID]{}
	return &poller{term: t, asked: map[fleet.InstanceID]int{}, urgent: questions{due: due}, deletions: questions{due: maps.Clone(due)}}
}

// next is when ask has something to do; zero: not before something happens.
func (p *poller) next() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	var next time.Time
	for _, q := range []*questions{&p.urgent, &p.deletions} {
		if !q.asking { // else not before the answer
			next = sooner(next, q.due.next())
		}
	}
	return next
}

// askNow raises an urgent question about an instance that is to be there; the
// end of one that is being deleted is polled for.
func (p *poller) askNow(r fleet.Instance) {
	if r.Phase.Active() || r.Phase == fleet.Draining {
		p.raise(&p.urgent, r.ID, time.Now())
	}
}

// poll asks for a VM until it is gone.
func (p *poller) poll(id fleet.InstanceID, now time.Time) { p.raise(&p.deletions, id, now) }

func (p *poller) raise(q *questions, id fleet.InstanceID, now time.Time) {
	p.mu.Lock()
	delete(p.asked, id)
	q.due.add(id, now)
	p.mu.Unlock()
	p.schedule.signal()
}

// ask sends the questions that are due, unless their call is in flight.
func (p *poller) ask(ctx context.Context, now time.Time) {
	for _, q := range []*questions{&p.urgent, &p.deletions} {
		if refs := p.take(q, now); len(refs) > 0 {
			p.workers.Go(func() { p.answered(ctx, q, p.status(ctx, refs)) })
		}
	}
}

func (p *poller) take(q *questions, now time.Time) (refs []provider.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.asking {
		return nil
	}
	for id, at := range q.due {
		if at.After(now) {
			continue
		}
		delete(q.due, id)
		if r, ok := p.cfg.Ledger.Get(id); ok && r.Phase != fleet.Deleted {
			refs = append(refs, refOf(r))
		} else {
			delete(p.asked, id)
		}
	}
	slices.SortFunc(refs, func(a, b provider.Ref) int { return cmp.Compare(a.ID, b.ID) })
	q.asking = len(refs) > 0
	return refs
}

// status asks about some VMs. What a List does not show is not found: the
// broken stream was the first sign of it, and this is the second.
func (p *poller) status(ctx context.Context, refs []provider.Ref) []answer {
	ctx, cancel := context.WithTimeout(ctx, min(statusTimeout, p.requestTimeout()))
	defer cancel()
	if len(refs) <= listAbove {
		return p.cloud.getAll(ctx, refs)
	}
	asked := time.Now()
	vms, err := p.cfg.Provider.List(ctx)
	answers := make([]answer, len(refs))
	shown := 0
	for n, ref := range refs {
		answers[n] = answer{id: ref.ID, err: err, asked: asked}
		answers[n].vm, answers[n].found = pick(vms, ref)
		if answers[n].found {
			shown++
		}
	}
	if err == nil && shown == 0 {
		p.doubt(ctx, refs, answers)
	}
	return answers
}

// errListed is a list that shows none of the VMs it was made for.
var errListed = errors.New("the list of VMs leaves out one that is there")

// doubt asks for the first, the middle and the last of the VMs of which a list
// showed none: before they are all given up, each of these must be gone.
func (p *poller) doubt(ctx context.Context, refs []provider.Ref, answers []answer) {
	sample := []int{0, len(refs) / 2, len(refs) - 1}
	var asked []provider.Ref
	for _, n := range sample {
		asked = append(asked, refs[n])
	}
	var wrong error
	got := p.cloud.getAll(ctx, asked)
	for _, a := range got {
		switch {
		case a.err != nil:
			wrong = a.err
		case a.found && a.vm.State.Exists():
			wrong = errListed
		}
	}
	if wrong == nil {
		return
	}
	for n := range answers {
		answers[n].err = wrong
	}
	for n, a := range got {
		answers[sample[n]] = a
	}
}

// pick finds the VM that ref names among vms, which are in the order of List.
func pick(vms []provider.VM, ref provider.Ref) (provider.VM, bool) {
	n, ok := slices.BinarySearchFunc(vms, ref.ID, func(vm provider.VM, id fleet.InstanceID) int { return cmp.Compare(vm.ID, id) })
	for ; ok && n < len(vms) && vms[n].ID == ref.ID; n++ {
		if ref.ProviderID == "" || vms[n].ProviderID == ref.ProviderID {
			return vms[n], true
		}
	}
	return provider.VM{}, false
}

// answered takes over the answers of one call and asks again where that makes sense.
func (p *poller) answered(ctx context.Context, q *questions, answers []answer) {
	var failed error
	var changed []fleet.Instance
	now := time.Now()
	for _, a := range answers {
		r, ok := p.cfg.Ledger.Get(a.id)
		if !ok {
			p.mu.Lock()
			delete(p.asked, a.id)
			p.mu.Unlock()
			continue
		}
		if a.err != nil {
			failed = a.err
		} else if p.observed.see(r, a, now) {
			changed = append(changed, r)
		}
		p.askAgain(q, r, a.err, now)
	}
	p.mu.Lock()
	q.asking = false
	began := failed != nil && !p.failing
	p.failing = failed != nil
	p.mu.Unlock()
	p.schedule.signal()
	for _, r := range changed {
		p.cfg.Changed(r.GroupKey(), r.ID)
	}
	if began { // once, not for every repetition
		p.fail(ctx, because(ReasonProvider, fmt.Errorf("ask for the state of %d VMs: %w", len(answers), failed)), fleet.GroupKey{}, "")
	} else if failed != nil {
		p.log.Debug("status call failed again", slog.Any("error", failed))
	}
}

// askAgain has a VM asked about once more, if that makes sense.
func (p *poller) askAgain(q *questions, r fleet.Instance, err error, now time.Time) {
	known := p.observed.get(r.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.ID]++
	if wait, again := askedAgain(r, &known, p.asked[r.ID], err, now); again {
		q.due.add(r.ID, now.Add(wait))
	} else {
		delete(p.asked, r.ID)
	}
}

// askedAgain says whether, and after how long, an instance's VM is asked about
// once more, after so many questions, of which the last ended with err.
func askedAgain(r fleet.Instance, known *observation, asked int, err error, now time.Time) (time.Duration, bool) {
	switch {
	case err == nil && known.vm == plan.VMGone:
		return 0, false
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
	case known.vm == plan.VMUnknown:
		wait := known.attempted(r).Add(believeNotFound).Sub(now)
		return wait, wait > 0
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
	if s.observed.see(r, answer{vm: e.VM, found: true, asked: now}, now) {
		s.cfg.Changed(r.GroupKey(), r.ID)
	}
}
