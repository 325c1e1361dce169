package process

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// watcher is one Watch.
type watcher struct {
	names map[string]struct{} // changed instances; guarded by the Provider's lock
	wake  chan struct{}       // holds at most one
}

// touch marks an instance as changed for every watch of this Provider.
func (p *Provider) touch(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watchers {
		w.names[name] = struct{}{}
		select {
		case w.wake <- struct{}{}:
		default: // already signalled
		}
	}
}

// drain returns and clears the changed names.
func (p *Provider) drain(w *watcher) map[string]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := w.names
	w.names = map[string]struct{}{}
	return names
}

// Watch implements provider.Watcher. Changes by this Provider and the exit of any instance are
// reported at once; changes by others at the next scan.
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
	v := &seenInstances{p: p, fn: fn, seen: map[string]provider.VM{}, guarded: map[string]birth{}}
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
			for name := range p.drain(w) {
				if err := v.inspect(ctx, name, true); err != nil {
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

// seenInstances is the state that one watch has reported.
type seenInstances struct {
	p       *Provider
	fn      func(provider.Event)
	seen    map[string]provider.VM
	guarded map[string]birth // processes being waited for
}

// scan inspects every folder, and those that have disappeared.
func (v *seenInstances) scan(ctx context.Context, tell bool) error {
	names, err := v.p.names()
	if err != nil {
		return err
	}
	for name := range v.seen {
		names = append(names, name)
	}
	for _, name := range names {
		if err := v.inspect(ctx, name, tell); err != nil {
			return err
		}
	}
	return nil
}

// inspect compares an instance with its last seen state, reports a change, and waits for its
// exit while it runs.
func (v *seenInstances) inspect(ctx context.Context, name string, tell bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	v.guard(ctx, name) // first: later exits are reported, earlier ones are seen below
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
		vm.Tags = maps.Clone(vm.Tags) // owned by the receiver
		v.fn(provider.Event{VM: vm})
	}
	return nil
}

// guard starts waiting for the exit of an instance's process, once.
func (v *seenInstances) guard(ctx context.Context, name string) {
	f, ok := v.p.folder(name)
	if !ok {
		return
	}
	b, born, err := f.birth()
	if err != nil {
		v.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "reading the pid failed", slog.String("instance", name), slog.Any("error", err))
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
