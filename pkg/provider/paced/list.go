package paced

import (
	"context"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// List lists all VMs. The timeout applies to each page, so that a slow list completes.
func (p *Provider) List(ctx context.Context) ([]provider.VM, error) {
	if err := p.reads.wait(ctx, behind, longest); err != nil {
		return nil, err
	}
	vms, asked, err := list(ctx, p.cfg)
	p.reads.ended(asked, err)
	return vms, err
}

// Listed is a list of all VMs that was started ahead of the Provider that uses it.
type Listed struct {
	vms   []provider.VM
	asked time.Time
	err   error
	ended chan struct{}
}

// ListAhead starts a list. It ends with ctx, and needs the Provider, Timeout and Listing of c.
func ListAhead(ctx context.Context, c Config) *Listed {
	l := &Listed{ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.vms, l.asked, l.err = list(ctx, c)
	}()
	return l
}

// Peek waits for the list, or until ctx ends, and returns the VMs, which the caller must not change. It is called
// before Wait.
func (l *Listed) Peek(ctx context.Context) ([]provider.VM, error) {
	select {
	case <-l.ended:
		return l.vms, l.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Wait returns the VMs, which are not kept, and when the call for them was sent. It is called once.
func (l *Listed) Wait() (vms []provider.VM, asked time.Time, err error) {
	<-l.ended
	vms, l.vms = l.vms, nil
	return vms, l.asked, l.err
}

// list makes one call, and returns when it was sent.
func list(ctx context.Context, c Config) (vms []provider.VM, asked time.Time, err error) {
	page, ended := func() {}, func(error) {}
	if c.Listing != nil {
		page, ended = c.Listing()
	}
	limit := c.Timeout()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(limit, cancel)
	defer silence.Stop()
	asked = time.Now()
	vms, err = c.Provider.List(provider.WithListing(asking, func() {
		silence.Reset(limit)
		page()
	}))
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no page came for %s: %w", limit, context.DeadlineExceeded)
	}
	ended(err)
	return vms, asked, err
}
