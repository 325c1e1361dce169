package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// list asks for all VMs. The request's timeout is that of one page, so that a
// list which comes slowly does come to its end.
func (l *Loop) list(ctx context.Context) ([]provider.VM, error) {
	page, ended := l.cfg.listing()
	limit := l.requestTimeout()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(limit, cancel)
	defer silence.Stop()
	vms, err := l.cfg.Provider.List(provider.WithListing(asking, func() {
		silence.Reset(limit)
		page()
	}))
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no page came for %s: %w", limit, context.DeadlineExceeded)
	}
	ended(err)
	return vms, err
}

func (c Config) listing() (page func(), ended func(error)) {
	if c.Listing == nil {
		return func() {}, func(error) {}
	}
	return c.Listing()
}
