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
func (l *Loop) watch(ctx context.Context, w provider.Watcher) {
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := w.Watch(ctx, l.event)
		if ctx.Err() != nil || errors.Is(err, provider.ErrUnsupported) {
			return
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		failures++
		if failures == 1 && err != nil {
			l.fail(ctx, because(ReasonProvider, fmt.Errorf("watch the provider: %w", err)), fleet.GroupKey{}, "")
		}
		if retry.Wait(ctx, stepBackoff().Delay(failures)) != nil {
			return
		}
		l.workers.Go(func() { l.catchUp(ctx) })
	}
}

// catchUp learns what a broken watch missed. It looks at instances only; VMs
// without a record are the sweep's.
func (l *Loop) catchUp(ctx context.Context) {
	asked := time.Now()
	vms, err := l.list(ctx)
	if err != nil {
		return // the next sweep lists again
	}
	c := compare(l.cfg.Ledger.Instances(), l.spokenFor(), vms)
	l.mu.Lock()
	suspects := l.absorb(ctx, c, asked)
	l.mu.Unlock()
	l.confirm(ctx, suspects)
}

// event takes over one change. A VM that no record names is no news here.
func (l *Loop) event(e provider.Event) {
	l.mu.Lock()
	r, ok := l.cfg.Ledger.Get(e.VM.ID)
	ok = ok && e.VM.ID != "" && (r.Provider.ID == "" || r.Provider.ID == e.VM.ProviderID)
	now := time.Now()
	changed := ok && l.observe(r, sight{vm: e.VM, found: true, asked: now}, now)
	l.mu.Unlock()
	if changed {
		l.changed(r.GroupKey(), r.ID)
	}
}
