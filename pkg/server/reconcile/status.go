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

// asker collects questions about VMs. One call is in flight at a time; the next
// covers every instance that came up meanwhile, so that a thousand broken
// streams cost two calls rather than a thousand. There are two askers, so that
// an urgent question never waits behind the polling of a deletion.
type asker struct {
	due    map[fleet.InstanceID]time.Time
	asking bool
}

const (
	// listAbove is how many instances are asked about one by one at most; above
	// that one List answers for all.
	listAbove = 10
	// statusTimeout bounds one status call, since others wait for it. It is
	// repeated.
	statusTimeout = 5 * time.Second
	// recheckCount: right after a machine was killed its provider may still call
	// it running, so while the agent stays away it is asked again this often,
	// first after 10 ms, then after twice that each time, up to 1 s; some two
	// seconds in all. After that it is left to the missed reports.
	recheckCount = 8
)

func recheckBackoff() retry.Backoff {
	return retry.Backoff{First: 10 * time.Millisecond, Limit: time.Second}
}
func pollBackoff() retry.Backoff {
	return retry.Backoff{First: 250 * time.Millisecond, Limit: 5 * time.Second}
}

func newAsker() asker { return asker{due: map[fleet.InstanceID]time.Time{}} }

// want has the asker ask about an instance at t, or sooner if it is to already.
func (a *asker) want(id fleet.InstanceID, t time.Time) {
	if old, ok := a.due[id]; !ok || t.Before(old) {
		a.due[id] = t
	}
}

// next is when the next question is due; zero: none, or not before an answer.
func (a *asker) next() time.Time {
	var next time.Time
	if a.asking {
		return next
	}
	for _, t := range a.due {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	return next
}

// askNow raises an urgent question about an instance that is to be there; the
// end of one that is being deleted is polled for. l.mu is held.
func (l *Loop) askNow(t *track, r fleet.Instance) {
	if r.Phase.Active() || r.Phase == fleet.Draining {
		t.asks = 0
		l.urgent.want(r.ID, time.Now())
		l.signal()
	}
}

// ask sends what is due, unless a call is in flight. l.mu is held.
func (l *Loop) ask(ctx context.Context, a *asker, now time.Time) {
	if a.asking {
		return
	}
	var refs []provider.Ref
	for id, at := range a.due {
		if at.After(now) {
			continue
		}
		delete(a.due, id)
		if r, ok := l.cfg.Ledger.Get(id); ok && r.Phase != fleet.Deleted {
			refs = append(refs, refOf(r))
		}
	}
	if len(refs) == 0 {
		return
	}
	slices.SortFunc(refs, func(a, b provider.Ref) int { return cmp.Compare(a.ID, b.ID) })
	a.asking = true
	l.workers.Go(func() { l.answered(ctx, a, l.status(ctx, refs)) })
}

// answer is what came back for one instance.
type answer struct {
	sight
	id  fleet.InstanceID
	err error // no answer
}

// status asks about some VMs. What a List does not show is not found: the broken
// stream was the first sign of it, and this is the second.
func (l *Loop) status(ctx context.Context, refs []provider.Ref) []answer {
	ctx, cancel := context.WithTimeout(ctx, min(statusTimeout, l.requestTimeout()))
	defer cancel()
	if len(refs) <= listAbove {
		return l.getAll(ctx, refs)
	}
	asked := time.Now()
	vms, err := l.cfg.Provider.List(ctx)
	answers := make([]answer, len(refs))
	shown := 0
	for n, ref := range refs {
		answers[n] = answer{id: ref.ID, err: err, sight: sight{asked: asked}}
		answers[n].vm, answers[n].found = pick(vms, ref)
		if answers[n].found {
			shown++
		}
	}
	if err == nil && shown == 0 {
		l.doubt(ctx, refs, answers)
	}
	return answers
}

// errListed is a list that shows none of the VMs it was made for.
var errListed = errors.New("the list of VMs leaves out one that is there")

// doubt asks for the first, the middle and the last of the VMs of which a list
// showed none: before they are all given up, each of these must be gone.
func (l *Loop) doubt(ctx context.Context, refs []provider.Ref, answers []answer) {
	sample := []int{0, len(refs) / 2, len(refs) - 1}
	var asked []provider.Ref
	for _, n := range sample {
		asked = append(asked, refs[n])
	}
	var wrong error
	got := l.getAll(ctx, asked)
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

// getAll asks about each VM, several at a time.
func (l *Loop) getAll(ctx context.Context, refs []provider.Ref) []answer {
	answers := make([]answer, len(refs))
	slots := make(chan struct{}, listAbove)
	var wg sync.WaitGroup
	for n, ref := range refs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			answers[n] = l.get(ctx, ref)
		})
	}
	wg.Wait()
	return answers
}

func (l *Loop) get(ctx context.Context, ref provider.Ref) answer {
	ctx, cancel := context.WithTimeout(ctx, l.requestTimeout())
	defer cancel()
	a := answer{id: ref.ID, sight: sight{asked: time.Now()}}
	a.vm, a.err = l.cfg.Provider.Get(ctx, ref)
	if errors.Is(a.err, provider.ErrNotFound) {
		a.err = nil
		return a
	}
	a.found = a.err == nil
	return a
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

func refOf(r fleet.Instance) provider.Ref {
	return provider.Ref{ID: r.ID, ProviderID: r.Provider.ID}
}

// answered takes over a batch of answers and asks again where that makes sense.
func (l *Loop) answered(ctx context.Context, a *asker, answers []answer) {
	var failed error
	l.mu.Lock()
	a.asking = false
	now := time.Now()
	var moved []fleet.Instance
	for _, got := range answers {
		r, ok := l.cfg.Ledger.Get(got.id)
		if !ok {
			continue
		}
		t := l.track(got.id)
		t.asks++
		if got.err != nil {
			failed = got.err
		} else if l.observe(r, got.sight, now) {
			moved = append(moved, r)
		}
		if wait, again := l.askAgain(r, t, got.err, now); again {
			a.want(got.id, now.Add(wait))
		}
	}
	began := failed != nil && !l.statusFailing
	l.statusFailing = failed != nil
	l.signal()
	l.mu.Unlock()
	for _, r := range moved {
		l.changed(r.GroupKey(), r.ID)
	}
	if began { // once, not for every repetition
		l.fail(ctx, because(ReasonProvider, fmt.Errorf("ask for the state of %d VMs: %w", len(answers), failed)), fleet.GroupKey{}, "")
	} else if failed != nil {
		l.log.Debug("status call failed again", slog.Any("error", failed))
	}
}

// askAgain says whether, and after how long, an instance's VM is asked about
// once more.
func (l *Loop) askAgain(r fleet.Instance, t *track, err error, now time.Time) (time.Duration, bool) {
	switch {
	case err == nil && t.vm == plan.VMGone:
		return 0, false
	case r.Phase == fleet.Deleting:
		return pollBackoff().Delay(t.asks), true
	case !t.doubtful():
		return 0, false
	case err != nil:
		return pollBackoff().Delay(t.asks), true
	case t.vm == plan.VMDown:
		return 0, false
	case t.asks <= recheckCount:
		return recheckBackoff().Delay(t.asks), true
	case t.vm == plan.VMUnknown:
		wait := l.attempted(r, t).Add(believeNotFound).Sub(now)
		return wait, wait > 0
	default:
		return 0, false
	}
}
