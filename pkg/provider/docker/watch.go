package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/nstance/nstance/pkg/provider"
)

// Watch implements provider.Watcher from the engine's events. A VM told of so
// has no addresses, and a CreatedAt only with the event of its creation: the
// engine does not say.
func (p *Provider) Watch(ctx context.Context, fn func(provider.Event)) error {
	// The first call of a client agrees on the API's version. Events is not safe to
	// be that call beside others, and a stream that can't start should say so.
	if _, err := p.api.ServerVersion(ctx); err != nil {
		return fmt.Errorf("watch containers: %w", kindOfRead(err))
	}
	which := p.labelFilter(filters.Arg("type", string(events.ContainerEventType)))
	messages, errs := p.api.Events(ctx, events.ListOptions{Filters: which})
	starved := map[string]bool{} // containers that ran out of memory, which is told before they die of it
	for {
		select {
		case m := <-messages:
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
