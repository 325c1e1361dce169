package leader

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/operators"
)

// instanceTypes are what the provider says of the instance types of groups. Each is
// asked for once, as soon as a group has it, so that no reader ever waits for that.
// Safe for concurrent use.
type instanceTypes struct {
	source  provider.InstanceTypes // nil: the provider knows nothing of instance types
	timeout func() time.Duration   // of one question
	used    func() []string        // the instance types of all groups
	told    func()                 // called when more is known
	random  func() float64
	logger  *slog.Logger
	wake    chan struct{} // holds at most one: groups have changed

	mu    sync.RWMutex
	known map[string]provider.InstanceType // the zero one: the provider has no such type
}

func (t *Term) newInstanceTypes() *instanceTypes {
	source, _ := provider.InstanceTypesOf(t.cfg.Provider)
	return &instanceTypes{
		source: source, timeout: t.config.requestTimeout, used: t.groups.instanceTypes, random: t.cfg.Uniform, logger: t.cfg.Logger,
		wake: make(chan struct{}, 1), known: map[string]provider.InstanceType{},
	}
}

// instanceTypes lists the instance types of all groups.
func (g *groups) instanceTypes() (names []string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, group := range g.merged {
		if group.InstanceType != "" {
			names = append(names, group.InstanceType)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// capacity is what a machine of an instance type has.
func (t *instanceTypes) capacity(name string) (operators.Capacity, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	facts := t.known[name]
	return operators.Capacity(facts), facts != provider.InstanceType{}
}

// knows reports whether there is nothing to be asked of an instance type.
func (t *instanceTypes) knows(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.known[name]
	return ok || name == "" || t.source == nil
}

// changed tells that groups may have other instance types.
func (t *instanceTypes) changed() {
	select {
	case t.wake <- struct{}{}:
	default: // it knows already
	}
}

// keep asks for what is not known until ctx ends.
func (t *instanceTypes) keep(ctx context.Context) {
	if t.source == nil {
		return
	}
	pauses := retry.Backoff{First: 5 * time.Second, Limit: 5 * time.Minute, Least: time.Second}
	for failures := 0; ; {
		err := t.learn(ctx)
		if err != nil && ctx.Err() == nil {
			failures++
			t.logger.Warn("instance types are not known yet", slog.Any("error", err))
			_ = retry.Wait(ctx, pauses.Draw(failures, t.random))
			continue
		}
		failures = 0
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
	}
}

// learn asks for the instance types that groups have come to have, and forgets those
// that none has any more.
func (t *instanceTypes) learn(ctx context.Context) error {
	names := t.used()
	t.mu.Lock()
	maps.DeleteFunc(t.known, func(name string, _ provider.InstanceType) bool {
		_, ok := slices.BinarySearch(names, name)
		return !ok
	})
	names = slices.DeleteFunc(names, func(name string) bool { _, ok := t.known[name]; return ok })
	t.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout())
	defer cancel()
	found, err := t.source.InstanceTypes(ctx, names)
	if err != nil {
		return fmt.Errorf("ask for instance types %q: %w", names, err)
	}
	t.mu.Lock()
	for _, name := range names {
		t.known[name] = found[name]
	}
	t.mu.Unlock()
	t.told()
	return nil
}
