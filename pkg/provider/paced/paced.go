package paced

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// StatusTimeout is the timeout of a Get, which is retried.
const StatusTimeout = 5 * time.Second

// Config configures a Provider.
type Config struct {
	Provider provider.Provider
	Timeout  func() time.Duration // timeout of a call
	Limits   Limits
	// Listing is called at the start of each list: page is called after each page, ended once
	// with the error, if any. Optional.
	Listing func() (page func(), ended func(error))
	// Go runs a function in its own goroutine.
	Go func(func())
	// Began is called when throttling begins.
	Began func(Throttling)
}

// Limits limit calls. They may change.
type Limits struct {
	Deletes   int     // maximum concurrent delete calls, at least 1
	PerSecond float64 // maximum rate of creates and deletes while throttling; 0: none
}

// Provider is a paced provider. It is safe for concurrent use.
type Provider struct {
	cfg Config

	mutations *turns // of creates and deletes
	reads     *turns // of status calls and lists

	urgent  *batches[Answer] // for instances that may be lost, not queued behind others
	gets    *batches[Answer] // for all others
	removes *batches[error]
}

// New returns a Provider.
func New(cfg Config) *Provider {
	p := &Provider{
		cfg:       cfg,
		mutations: &turns{what: "creates and deletes", began: cfg.Began}, reads: &turns{what: "status calls and lists", began: cfg.Began},
	}
	p.urgent = &batches[Answer]{send: p.status, run: cfg.Go, limit: singly, turns: p.reads, line: inFront}
	p.gets = &batches[Answer]{send: p.status, run: cfg.Go, limit: singly, turns: p.reads, line: behind}
	p.removes = &batches[error]{send: p.delete, run: cfg.Go, turns: p.mutations, line: behind}
	p.removes.resize(cfg.Limits.Deletes)
	p.mutations.limit(cfg.Limits.PerSecond)
	return p
}

// Retune changes the limits. Call Resume to use a higher limit of deletes at once.
func (p *Provider) Retune(l Limits) {
	p.removes.resize(l.Deletes)
	p.mutations.limit(l.PerSecond)
}

// Resume starts waiting deletes up to the limit.
func (p *Provider) Resume(ctx context.Context) { p.removes.next(ctx) }

// Answer is the provider's answer about one VM.
type Answer struct {
	ID    fleet.InstanceID
	VM    provider.VM
	Found bool
	Asked time.Time // when the call was sent
	Err   error     // the call failed
}

// Get gets VMs, batched with other concurrent reads.
func (p *Provider) Get(ctx context.Context, refs ...provider.Ref) []Answer {
	return p.gets.all(ctx, refs...)
}

// GetNow gets one VM in a call of its own, ahead of others.
func (p *Provider) GetNow(ctx context.Context, ref provider.Ref) Answer {
	if err := p.reads.wait(ctx, inFront, longest); err != nil {
		return Answer{ID: ref.ID, Err: err}
	}
	return p.status(ctx, []provider.Ref{ref})[0]
}

// Poll is an asynchronous Get: answered is called once per VM, in a goroutine of Config.Go.
// Urgent reads don't wait for others.
func (p *Provider) Poll(ctx context.Context, refs []provider.Ref, urgent bool, answered func(Answer)) {
	to := p.gets
	if urgent {
		to = p.urgent
	}
	to.add(ctx, refs, func(_ int, a Answer) { answered(a) })
}

// status makes one Get call.
func (p *Provider) status(ctx context.Context, refs []provider.Ref) []Answer {
	ctx, cancel := context.WithTimeout(ctx, min(StatusTimeout, p.cfg.Timeout()))
	defer cancel()
	asked := time.Now()
	answers := make([]Answer, len(refs))
	for n, got := range p.cfg.Provider.Get(ctx, refs) {
		a := Answer{ID: refs[n].ID, VM: got.VM, Found: got.Err == nil, Asked: asked, Err: got.Err}
		if errors.Is(got.Err, provider.ErrNotFound) {
			a.Err = nil
		}
		answers[n] = a
	}
	p.reads.ended(asked, worst(answers, func(a Answer) error { return a.Err }))
	return answers
}

// worst returns the most telling error of a batched call: throttling, else the first.
func worst[T any](all []T, errOf func(T) error) error {
	for _, one := range all {
		if err := errOf(one); errors.Is(err, provider.ErrThrottled) {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errOf(all[0])
}

// ClaimCreate takes the turn of a create if it is due; otherwise it returns when the next one
// is, so that the caller can claim again.
func (p *Provider) ClaimCreate(now time.Time) (at time.Time, ok bool) { return p.mutations.claim(now) }

// Changes returns the rate of creates and deletes that the provider accepts; 0 if it is not
// throttling.
func (p *Provider) Changes() (perSecond float64) { return p.mutations.rate() }

// Create creates a VM when its turn comes, immediately if it was claimed. While it is
// throttled, which definitely made nothing, it is retried ahead of all other changes, up to
// patience. asked is when the last call was sent.
func (p *Provider) Create(ctx context.Context, spec provider.Spec, claimed bool) (vm provider.VM, asked time.Time, err error) {
	for began := time.Now(); ; claimed = false {
		if left := time.Until(began.Add(patience)); !claimed {
			if waited := p.mutations.wait(ctx, inFront, left); waited != nil {
				return vm, asked, cmp.Or(err, waited)
			}
		}
		asked = time.Now()
		vm, err = p.createNow(ctx, spec)
		p.mutations.ended(asked, err)
		if !errors.Is(err, provider.ErrThrottled) {
			return vm, asked, err
		}
	}
}

func (p *Provider) createNow(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout())
	defer cancel()
	return p.cfg.Provider.Create(ctx, spec)
}

// AskToDelete deletes a VM, batched with other concurrent deletes. It returns at once; answered is called
// once, by another goroutine.
func (p *Provider) AskToDelete(ctx context.Context, ref provider.Ref, answered func(error)) {
	p.removes.add(ctx, []provider.Ref{ref}, func(_ int, err error) { answered(err) })
}

// DeleteAlone deletes a VM in a call of its own.
func (p *Provider) DeleteAlone(ctx context.Context, ref provider.Ref) error {
	if err := p.mutations.wait(ctx, behind, longest); err != nil {
		return err
	}
	return p.delete(ctx, []provider.Ref{ref})[0]
}

// delete makes one Delete call.
func (p *Provider) delete(ctx context.Context, refs []provider.Ref) []error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout())
	defer cancel()
	asked := time.Now()
	errs := p.cfg.Provider.Delete(ctx, refs)
	p.mutations.ended(asked, worst(errs, func(err error) error { return err }))
	return errs
}

// Throttled returns the kinds of calls that are throttled now.
func (p *Provider) Throttled() (all []Throttling) {
	for _, t := range []*turns{p.mutations, p.reads} {
		if is, ok := t.throttling(); ok {
			all = append(all, is)
		}
	}
	return all
}

// Calm ends throttling that is over, and reports whether it ended any. It returns when to check
// again; zero: when something happens.
func (p *Provider) Calm(now time.Time) (again time.Time, ended bool) {
	for _, t := range []*turns{p.mutations, p.reads} {
		at, over := t.calm(now)
		ended = ended || over
		if again.IsZero() || !at.IsZero() && at.Before(again) {
			again = at
		}
	}
	return again, ended
}
