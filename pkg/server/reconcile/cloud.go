package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// statusTimeout bounds one status call. It is repeated.
const statusTimeout = 5 * time.Second

// cloud is the provider as the loop calls it: every request has a timeout, and
// the calls under way are bounded.
type cloud struct {
	cfg     Config
	timeout func() time.Duration

	urgent  *calls[answer] // about instances that may be lost, which wait for nothing else
	gets    *calls[answer] // about all others
	removes *calls[error]  // of what a record says is to go
	deletes *slots         // of what has no record: each is looked at right before
}

func newCloud(cfg Config, timeout func() time.Duration, run func(func())) *cloud {
	c := &cloud{cfg: cfg, timeout: timeout, deletes: newSlots(cfg.CreateRate.Concurrency)}
	c.urgent = &calls[answer]{send: c.status, run: run, limit: singly}
	c.gets = &calls[answer]{send: c.status, run: run, limit: singly}
	c.removes = &calls[error]{send: c.deleteAll, run: run, limit: cfg.CreateRate.Concurrency}
	return c
}

// resize changes how many deletes may be under way at one time.
func (c *cloud) resize(limit int) {
	c.deletes.resize(limit)
	c.removes.resize(limit)
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
	page, ended := func() {}, func(error) {}
	if c.cfg.Listing != nil {
		page, ended = c.cfg.Listing()
	}
	limit := c.timeout()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(limit, cancel)
	defer silence.Stop()
	vms, err := c.cfg.Provider.List(provider.WithListing(asking, func() {
		silence.Reset(limit)
		page()
	}))
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no page came for %s: %w", limit, context.DeadlineExceeded)
	}
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
	return answers
}

func (c *cloud) create(ctx context.Context, spec provider.Spec, subnet string) (provider.VM, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	spec.Subnet = subnet
	return c.cfg.Provider.Create(ctx, spec)
}

// remove deletes a VM, together with others that are to go at the moment.
func (c *cloud) remove(ctx context.Context, ref provider.Ref) error {
	return c.removes.all(ctx, ref)[0]
}

func (c *cloud) delete(ctx context.Context, ref provider.Ref) error {
	return c.deleteAll(ctx, []provider.Ref{ref})[0]
}

// deleteAll is one call that deletes VMs.
func (c *cloud) deleteAll(ctx context.Context, refs []provider.Ref) []error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	return c.cfg.Provider.Delete(ctx, refs)
}
