package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// cloud is the provider as the loop calls it: every request has a timeout, and
// the deletes under way are bounded.
type cloud struct {
	cfg     Config
	timeout func() time.Duration
	deletes *slots
}

// answer is what came back for one instance.
type answer struct {
	id      fleet.InstanceID
	vm      provider.VM
	found   bool
	created bool      // by a create: no proof that the provider shows the VM to others yet
	asked   time.Time // when the question was sent
	err     error     // no answer
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

// getAll asks about each VM, several at a time.
func (c *cloud) getAll(ctx context.Context, refs []provider.Ref) []answer {
	answers := make([]answer, len(refs))
	slots := make(chan struct{}, listAbove)
	var wg sync.WaitGroup
	for n, ref := range refs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			answers[n] = c.get(ctx, ref)
		})
	}
	wg.Wait()
	return answers
}

func (c *cloud) get(ctx context.Context, ref provider.Ref) answer {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	a := answer{id: ref.ID, asked: time.Now()}
	a.vm, a.err = provider.GetOne(ctx, c.cfg.Provider, ref)
	if errors.Is(a.err, provider.ErrNotFound) {
		a.err = nil
		return a
	}
	a.found = a.err == nil
	return a
}

func (c *cloud) create(ctx context.Context, spec provider.Spec, subnet string) (provider.VM, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	spec.Subnet = subnet
	return c.cfg.Provider.Create(ctx, spec)
}

func (c *cloud) delete(ctx context.Context, ref provider.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	return provider.DeleteOne(ctx, c.cfg.Provider, ref)
}
