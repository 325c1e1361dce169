package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/nstance/nstance/pkg/provider"
)

// Watch implements provider.Watcher with the engine's events. It resumes where the previous
// Watch ended, as far as the engine remembers, otherwise some seconds ago, and reports every
// stopped container: a restarted engine has no history, and its containers died with it. So
// events may be repeated.
//
// The VM of an event has no addresses, and CreatedAt only in the creation event, as the engine
// does not report them.
func (p *Provider) Watch(ctx context.Context, fn func(provider.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard, err := p.engineTime(ctx)
	if err != nil {
		return fmt.Errorf("watch containers: %w", err)
	}
	heard = p.gap.start(heard)
	defer func() { p.gap.end(heard) }()
	which := p.labelFilter(filters.Arg("type", string(events.ContainerEventType)))
	messages, errs := p.api.Events(ctx, events.ListOptions{Since: engineStamp(heard), Filters: which})
	// After the stream began, so that any later exit is in the stream.
	if err := p.emitStopped(ctx, fn); err != nil {
		return err
	}
	starved := map[string]bool{} // containers that ran out of memory, which is reported before their exit
	for {
		select {
		case m := <-messages:
			heard = time.Unix(0, m.TimeNano)
			switch m.Action {
			case events.ActionOOM:
				starved[m.Actor.ID] = true
			case events.ActionStart, events.ActionDestroy:
				delete(starved, m.Actor.ID)
			default:
			}
			if e, ok := p.event(m, starved[m.Actor.ID]); ok {
				fn(e)
			}
		case err := <-errs:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil {
				err = errors.New("closed by the engine")
			}
			return fmt.Errorf("watch containers: %w", err)
		}
	}
}

// engineTime returns the engine's time, by which events are dated. A client's first call also
// negotiates the API version; Events must not be that call concurrently with others, and a
// stream that can't start should fail.
func (p *Provider) engineTime(ctx context.Context) (time.Time, error) {
	info, err := p.api.Info(ctx)
	if err != nil {
		return time.Time{}, kindOfRead(err)
	}
	now, err := time.Parse(time.RFC3339Nano, info.SystemTime)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the engine's time: %w", err)
	}
	return now, nil
}

// engineStamp formats a time for the engine.
func engineStamp(at time.Time) string { return fmt.Sprintf("%d.%09d", at.Unix(), at.Nanosecond()) }

// emitStopped reports all stopped containers.
func (p *Provider) emitStopped(ctx context.Context, fn func(provider.Event)) error {
	vms, err := p.List(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("watch containers: %w", err)
	}
	for _, vm := range vms {
		if vm.State == provider.StateStopped {
			fn(provider.Event{VM: vm})
		}
	}
	return nil
}

// gap is the engine time at which the last Watch ended, where the next one resumes. It is safe
// for concurrent use.
type gap struct {
	mu   sync.Mutex
	from time.Time // zero: none
}

// overlap is how far back a first Watch begins: the engine may emit an exit slightly before its
// lists show it, so a very recent one could be in neither.
const overlap = 10 * time.Second

// start returns the time at which a Watch begins.
func (g *gap) start(now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := g.from
	g.from = time.Time{}
	if from.IsZero() || from.After(now) { // in the future: the engine's clock was set back
		return now.Add(-overlap)
	}
	return from
}

// end records the time up to which a Watch received events.
func (g *gap) end(heard time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.from.IsZero() || heard.Before(g.from) {
		g.from = heard
	}
}

// event converts a state change; ok is false for other events.
func (p *Provider) event(m events.Message, outOfMemory bool) (e provider.Event, ok bool) {
	vm := provider.VM{ProviderID: m.Actor.ID}
	switch m.Action {
	case events.ActionCreate:
		vm.State, vm.CreatedAt = provider.StatePending, time.Unix(0, m.TimeNano).UTC()
	case events.ActionStart:
		vm.State = provider.StateRunning
	case events.ActionDie:
		vm.State, vm.Reason = provider.StateStopped, ending(m.Actor.Attributes["exitCode"], outOfMemory, "")
	case events.ActionDestroy:
		vm.State = provider.StateDeleted
	default:
		return provider.Event{}, false
	}
	// Attributes are the labels and a few names of the engine.
	labels := maps.Clone(m.Actor.Attributes)
	for _, own := range []string{"name", "image", "exitCode", "signal", "execDuration"} {
		delete(labels, own)
	}
	return provider.Event{VM: labelled(vm, labels)}, p.cfg.owns(labels)
}
