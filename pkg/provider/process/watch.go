package process

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// watcher is one stream of changes.
type watcher struct {
	names map[string]struct{} // to be looked at, under the Provider's lock
	wake  chan struct{}       // holds at most one
}

// touch has every watch of this Provider look at an instance.
func (p *Provider) touch(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watchers {
		w.names[name] = struct{}{}
		select {
		case w.wake <- struct{}{}:
		default: // already woken
		}
	}
}

// take returns the names to look at, and forgets them.
func (p *Provider) take(w *watcher) map[string]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := w.names
	w.names = map[string]struct{}{}
	return names
}

// Watch implements provider.Watcher. What this Provider does, and the death of
// any instance, is told at once; what others do in the folder, at the next scan.
func (p *Provider) Watch(ctx context.Context, fn func(provider.Event)) error {
	w := &watcher{names: map[string]struct{}{}, wake: make(chan struct{}, 1)}
	p.mu.Lock()
	p.watchers[w] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, w)
	}()
	v := &view{p: p, fn: fn, seen: map[string]provider.VM{}, guarded: map[string]birth{}}
	if err := v.scan(ctx, false); err != nil {
		return err
	}
	tick := time.NewTicker(p.cfg.ScanInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
			for name := range p.take(w) {
				if err := v.look(ctx, name, true); err != nil {
					return err
				}
			}
		case <-tick.C:
			if err := v.scan(ctx, true); err != nil {
				return err
			}
		}
	}
}

// view is what one watch has seen so far.
type view struct {
	p       *Provider
	fn      func(provider.Event)
	seen    map[string]provider.VM
	guarded map[string]birth // processes whose end is waited for
}

// scan looks at every folder, and at those that were there.
func (v *view) scan(ctx context.Context, tell bool) error {
	names, err := v.p.names()
	if err != nil {
		return err
	}
	for name := range v.seen {
		names = append(names, name)
	}
	for _, name := range names {
		if err := v.look(ctx, name, tell); err != nil {
			return err
		}
	}
	return nil
}

// look compares an instance with what was seen of it, tells of a change, and has
// its end waited for while it runs.
func (v *view) look(ctx context.Context, name string, tell bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	v.guard(ctx, name) // first: a death right after it is told, one before it is seen below
	vm, ok, err := v.p.load(name)
	if unreadable(err) {
		return nil
	}
	if err != nil {
		return err
	}
	before, known := v.seen[name]
	switch {
	case !ok && !known:
		return nil
	case !ok:
		vm = before
		vm.State = provider.StateDeleted
		delete(v.seen, name)
		delete(v.guarded, name)
	default:
		v.seen[name] = vm
	}
	if tell && (!known || vm.State != before.State) {
		vm.Tags = maps.Clone(vm.Tags) // the receiver's own
		v.fn(provider.Event{VM: vm})
	}
	return nil
}

// guard starts to wait for the end of an instance's process, once.
func (v *view) guard(ctx context.Context, name string) {
	f, ok := v.p.folder(name)
	if !ok {
		return
	}
	b, born, err := f.birth()
	if err != nil {
		v.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "pid can't be read", slog.String("instance", name), slog.Any("error", err))
		return
	}
	if !born || v.guarded[name] == b || !b.alive() {
		return
	}
	v.guarded[name] = b
	go func() {
		if awaitExit(ctx, b) == nil {
			v.p.touch(name)
		}
	}()
}
