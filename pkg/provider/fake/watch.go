package fake

import (
	"context"

	"github.com/nstance/nstance/pkg/provider"
)

// watcher is one Watch. Its queue is unbounded, so that a slow consumer does not block the
// world.
type watcher struct {
	scope  provider.Scope
	queue  []provider.Event // under the world's lock
	broken error            // under the world's lock
	wake   chan struct{}    // holds at most one
}

// Watch implements provider.Watcher. It returns ctx's error, or the one of BreakWatches.
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
		events, broken := p.w.drain(wt)
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

// BreakWatches ends every watch with err, which must not be nil, after its pending events.
func (w *World) BreakWatches(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wt := range w.watchers {
		wt.broken = err
		wt.signal()
	}
}

// notify queues a machine's current state for all watchers, and records it for stale reads. It
// requires the lock.
func (w *World) notify(r *row) {
	w.changes.Add(1)
	r.note(w.cfg.Lag.Max)
	for wt := range w.watchers {
		if wt.scope == r.scope {
			wt.queue = append(wt.queue, provider.Event{VM: r.snapshot()})
			wt.signal()
		}
	}
}

func (w *World) drain(wt *watcher) ([]provider.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := wt.queue
	wt.queue = nil
	return events, wt.broken
}

func (wt *watcher) signal() {
	select {
	case wt.wake <- struct{}{}:
	default: // already signalled
	}
}
