package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// statusTimeout bounds one status call. It is repeated.
const statusTimeout = 5 * time.Second

// cloud is the provider as the loop calls it: every request has a timeout, the
// calls under way are bounded, and while the provider throttles they wait for their
// turn.
type cloud struct {
	cfg     Config
	timeout func() time.Duration

	mutations *turns // of creates and deletes
	reads     *turns // of status calls and lists

	urgent  *calls[answer] // about instances that may be lost, which wait for nothing else
	gets    *calls[answer] // about all others
	removes *calls[error]  // of what a record says is to go
	deletes *slots         // of what has no record: each is looked at right before
}

func newCloud(cfg Config, timeout func() time.Duration, run func(func()), throttled func(fleet.Problem)) *cloud {
	c := &cloud{
		cfg: cfg, timeout: timeout, deletes: newSlots(cfg.CreateRate.Concurrency),
		mutations: &turns{what: "creates and deletes", began: throttled}, reads: &turns{what: "status calls and lists", began: throttled},
	}
	c.urgent = &calls[answer]{send: c.status, run: run, limit: singly, turns: c.reads, line: inFront}
	c.gets = &calls[answer]{send: c.status, run: run, limit: singly, turns: c.reads, line: behind}
	c.removes = &calls[error]{send: c.deleteAll, run: run, limit: cfg.CreateRate.Concurrency, turns: c.mutations, line: behind}
	c.retune(cfg.CreateRate)
	return c
}

// retune changes how many deletes may be under way at one time, and how many
// changes a second are asked for at most while the provider throttles.
func (c *cloud) retune(r CreateRate) {
	c.deletes.resize(r.Concurrency)
	c.removes.resize(r.Concurrency)
	c.mutations.limit(r.PerSecond)
}

// answer is what came back for one instance.
type answer struct {
	id    fleet.InstanceID
	vm    provider.VM
	found bool
	asked time.Time // when the question was sent
	err   error     // no answer
	// unlisted: the question was raised by a list that did not show the VM although it
	// is to be there.
	unlisted bool
}

func refOf(r fleet.Instance) provider.Ref {
	return provider.Ref{ID: r.ID, ProviderID: r.Provider.ID}
}

// list asks for all VMs. The request's timeout is that of one page, so that a
// list which comes slowly does come to its end.
func (c *cloud) list(ctx context.Context) ([]provider.VM, error) {
	if err := c.reads.wait(ctx, behind, longest); err != nil {
		return nil, err
	}
	page, ended := func() {}, func(error) {}
	if c.cfg.Listing != nil {
		page, ended = c.cfg.Listing()
	}
	limit := c.timeout()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(limit, cancel)
	defer silence.Stop()
	asked := time.Now()
	vms, err := c.cfg.Provider.List(provider.WithListing(asking, func() {
		silence.Reset(limit)
		page()
	}))
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no page came for %s: %w", limit, context.DeadlineExceeded)
	}
	c.reads.ended(asked, err)
	ended(err)
	return vms, err
}

// getAll asks about VMs that are not urgent.
func (c *cloud) getAll(ctx context.Context, refs []provider.Ref) []answer {
	return c.gets.all(ctx, refs...)
}

func (c *cloud) get(ctx context.Context, ref provider.Ref) answer { return c.gets.all(ctx, ref)[0] }

// status is one call that asks about VMs.
func (c *cloud) status(ctx context.Context, refs []provider.Ref) []answer {
	ctx, cancel := context.WithTimeout(ctx, min(statusTimeout, c.timeout()))
	defer cancel()
	asked := time.Now()
	answers := make([]answer, len(refs))
	for n, got := range c.cfg.Provider.Get(ctx, refs) {
		a := answer{id: refs[n].ID, vm: got.VM, found: got.Err == nil, asked: asked, err: got.Err}
		if errors.Is(got.Err, provider.ErrNotFound) {
			a.err = nil
		}
		answers[n] = a
	}
	c.reads.ended(asked, worst(answers, func(a answer) error { return a.err }))
	return answers
}

// worst is the error of a call about several VMs that tells how it went: that it was
// throttled, else that of the first.
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

// create asks for a VM when its turn has come, which is so already the first time if
// it is taken. While it is throttled, which made nothing, it is repeated before
// anything else is changed, for as long as it has patience.
func (c *cloud) create(ctx context.Context, spec provider.Spec, taken bool) (vm provider.VM, asked time.Time, err error) {
	for began := time.Now(); ; taken = false {
		if left := time.Until(began.Add(patience)); !taken {
			if waited := c.mutations.wait(ctx, inFront, left); waited != nil {
				return vm, asked, cmp.Or(err, waited)
			}
		}
		asked = time.Now()
		vm, err = c.createNow(ctx, spec)
		c.mutations.ended(asked, err)
		if !errors.Is(err, provider.ErrThrottled) {
			return vm, asked, err
		}
	}
}

func (c *cloud) createNow(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	return c.cfg.Provider.Create(ctx, spec)
}

// remove deletes a VM, together with others that are to go at the moment.
func (c *cloud) remove(ctx context.Context, ref provider.Ref) error {
	return c.removes.all(ctx, ref)[0]
}

func (c *cloud) delete(ctx context.Context, ref provider.Ref) error {
	if err := c.mutations.wait(ctx, behind, longest); err != nil {
		return err
	}
	return c.deleteAll(ctx, []provider.Ref{ref})[0]
}

// deleteAll is one call that deletes VMs.
func (c *cloud) deleteAll(ctx context.Context, refs []provider.Ref) []error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	asked := time.Now()
	errs := c.cfg.Provider.Delete(ctx, refs)
	c.mutations.ended(asked, worst(errs, func(err error) error { return err }))
	return errs
}

// calm ends throttling that is over. It returns when to look again; zero: not before
// something happens.
func (c *cloud) calm(now time.Time, ended func()) (again time.Time) {
	for _, t := range []*turns{c.mutations, c.reads} {
		at, over := t.calm(now)
		if over {
			ended()
		}
		again = sooner(again, at)
	}
	return again
}
