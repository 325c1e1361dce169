package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

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
		s.changed(r.GroupKey(), r.ID)
	}
}
