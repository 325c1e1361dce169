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

// Watch implements provider.Watcher from the engine's events. It begins where the
// Watch before it broke off, as far as the engine remembers, else some seconds ago, and
// tells of each container that has stopped already: an engine that was restarted remembers nothing,
// and its containers died with it. What is told so may have been told before.
//
// A VM told of by an event has no addresses, and a CreatedAt only with the event of its
// creation: the engine does not say.
func (p *Provider) Watch(ctx context.Context, fn func(provider.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard, err := p.engineTime(ctx)
	if err != nil {
		return fmt.Errorf("watch containers: %w", err)
	}
	heard = p.gap.begin(heard)
	defer func() { p.gap.end(heard) }()
	which := p.labelFilter(filters.Arg("type", string(events.ContainerEventType)))
	messages, errs := p.api.Events(ctx, events.ListOptions{Since: engineStamp(heard), Filters: which})
	// After the stream began, so that whatever dies from here on is in it.
	if err := p.tellStopped(ctx, fn); err != nil {
		return err
	}
	starved := map[string]bool{} // containers that ran out of memory, which is told before they die of it
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

// engineTime asks the engine for its time, by which its events are dated. The first
// call of a client agrees on the API's version. Events is not safe to be that call
// beside others, and a stream that can't start should say so.
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

// engineStamp is a time as the engine takes it.
func engineStamp(at time.Time) string { return fmt.Sprintf("%d.%09d", at.Unix(), at.Nanosecond()) }

// tellStopped tells of what has stopped.
func (p *Provider) tellStopped(ctx context.Context, fn func(provider.Event)) error {
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

// gap is from when on a Watch that has ended heard nothing, by the engine's time; the
// next one begins there. It is safe for concurrent use.
type gap struct {
	mu   sync.Mutex
	from time.Time // zero: there is none
}

// overlap is how far back a Watch begins that follows none: an engine may tell of a death
// a little before its lists show it, so one that came just before is in neither otherwise.
const overlap = 10 * time.Second

// begin returns where a Watch begins.
func (g *gap) begin(now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := g.from
	g.from = time.Time{}
	if from.IsZero() || from.After(now) { // later: the engine's clock was set back
		return now.Add(-overlap)
	}
	return from
}

// end notes how far a Watch heard.
func (g *gap) end(heard time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.from.IsZero() || heard.Before(g.from) {
		g.from = heard
	}
}

// event translates what is a change of state; ok is false for the rest.
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
	// Attributes are the labels and a few of the engine's own words.
	labels := maps.Clone(m.Actor.Attributes)
	for _, own := range []string{"name", "image", "exitCode", "signal", "execDuration"} {
		delete(labels, own)
	}
	return provider.Event{VM: labelled(vm, labels)}, p.cfg.Scope.Owns(labels)
}
