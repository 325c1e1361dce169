package fake

import (
	"context"

	"github.com/nstance/nstance/pkg/provider"
)

// watcher is one stream of changes. Its queue has no bound: a slow consumer
// must not hold up the world.
type watcher struct {
	scope  provider.Scope
	queue  []provider.Event // under the world's lock
	broken error            // under the world's lock
	wake   chan struct{}    // holds at most one
}

// Watch implements provider.Watcher. It returns ctx's error, or the one given
// to BreakWatches.
func (p *Provider) Watch(ctx context.Context, fn func(provider.Event)) error {
	wt := &watcher{scope: p.scope, wake: make(chan struct{}, 1)}
	p.w.mu.Lock()
	p.w.watchers[wt] = struct{}{}
	p.w.mu.Unlock()
	defer func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		delete(p.w.watchers, wt)
	}()
	for {
		events, broken := p.w.take(wt)
		for _, e := range events {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fn(e)
		}
		if broken != nil {
			return broken
		}
		select {
		case <-wt.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// BreakWatches ends every watch with err, which is not nil, after what it has
// been told already.
func (w *World) BreakWatches(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wt := range w.watchers {
		wt.broken = err
		wt.signal()
	}
}

// tell queues a machine's present state for all who watch it, and notes it for
// reads that lag. It holds the lock.
func (w *World) tell(r *row) {
	w.changes.Add(1)
	r.note(w.cfg.Lag.Max)
	for wt := range w.watchers {
		if wt.scope == r.scope {
			wt.queue = append(wt.queue, provider.Event{VM: r.snapshot()})
			wt.signal()
		}
	}
}

func (w *World) take(wt *watcher) ([]provider.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := wt.queue
	wt.queue = nil
	return events, wt.broken
}

func (wt *watcher) signal() {
	select {
	case wt.wake <- struct{}{}:
	default: // already told
	}
}
