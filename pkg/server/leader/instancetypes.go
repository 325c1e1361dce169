package leader

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/operators"
)

// instanceTypes caches the provider's facts about the instance types of groups. Each type is
// queried once, in the background, when a group first uses it, so readers never wait. Safe for
// concurrent use.
type instanceTypes struct {
	source  provider.InstanceTypes // nil: the provider has no facts about instance types
	timeout func() time.Duration   // of one query
	used    func() []string        // the instance types of all groups
	told    func()                 // called when new facts are known
	random  func() float64
	logger  *slog.Logger
	wake    chan struct{} // capacity 1: groups have changed

	mu    sync.RWMutex
	known map[string]provider.InstanceType // the zero one: the provider has no such type
}

func (t *Term) newInstanceTypes() *instanceTypes {
	source, _ := provider.InstanceTypesOf(t.cfg.Provider)
	return &instanceTypes{
		source: source, timeout: t.config.requestTimeout, used: t.groups.InstanceTypes, told: func() { t.problemChanged(fleet.GroupKey{}) },
		random: t.cfg.Uniform, logger: t.cfg.Logger, wake: make(chan struct{}, 1), known: map[string]provider.InstanceType{},
	}
}

// capacity returns the resources of a machine of an instance type.
func (t *instanceTypes) capacity(name string) (operators.Capacity, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	facts := t.known[name]
	return operators.Capacity(facts), facts != provider.InstanceType{}
}

// knows reports whether an instance type needs no query.
func (t *instanceTypes) knows(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.known[name]
	return ok || name == "" || t.source == nil
}

// changed schedules a query, as groups may have other instance types.
func (t *instanceTypes) changed() {
	select {
	case t.wake <- struct{}{}:
	default: // already scheduled
	}
}

// run queries unknown instance types until ctx ends.
func (t *instanceTypes) run(ctx context.Context) {
	if t.source == nil {
		return
	}
	pauses := retry.Backoff{First: 5 * time.Second, Limit: 5 * time.Minute, Least: time.Second}
	for failures := 0; ; {
		err := t.learn(ctx)
		if err != nil && ctx.Err() == nil {
			failures++
			t.logger.Warn("can't query instance types yet", slog.Any("error", err))
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

// learn queries the instance types that are new among groups, and forgets those that no group
// uses.
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
		return fmt.Errorf("query instance types %q: %w", names, err)
	}
	t.mu.Lock()
	for _, name := range names {
		t.known[name] = found[name]
	}
	t.mu.Unlock()
	t.told()
	return nil
}
