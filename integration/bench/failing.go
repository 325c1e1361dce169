package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	failingGrowth  = 50
	failingRefused = 300 // groups of one
	failingMortal  = 100 // machines of one group
	failingLife    = 2 * time.Second
	failingRatio   = 1.2
	// failingRefill is how long the burst of the create rate needs to be there again,
	// which the first creates of the others used up.
	failingRefill = 5 * time.Second
)

// measureFailing lets a group grow alone, beside groups whose args the provider
// refuses, and beside one whose machines die young, as soon as these fail.
func measureFailing(ctx context.Context, b *bench) ([]figure, error) {
	refused := map[string]int{}
	for n := range failingRefused {
		refused[fmt.Sprintf("refused-%d", n)] = 1
	}
	alone, err := b.growBeside(ctx, "failing-alone", &failingMachines{})
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, s := range []struct {
		name, beside string
		machines     *failingMachines
	}{
		{"failing_refused", fmt.Sprintf("%d groups with invalid args", failingRefused), &failingMachines{others: refused, refuses: true}},
		{"failing_mortal", fmt.Sprintf("a group of %d whose machines live for %s", failingMortal, failingLife),
			&failingMachines{others: map[string]int{"mortal": failingMortal}}},
	} {
		took, err := b.growBeside(ctx, s.name, s.machines)
		if err != nil {
			return figures, err
		}
		figures = append(figures, newFigure(s.name, took.Seconds()/alone.Seconds(), "x", failingGrowth).atMost(failingRatio).
			noted("%.2f s beside %s, %.2f s alone; they made %d creates", took.Seconds(), s.beside, alone.Seconds(), s.machines.failed()))
	}
	return figures, nil
}

// failingMachines are machines of which those of some groups come to nothing.
type failingMachines struct {
	watchedMachines
	others  map[string]int // these groups, with their sizes
	refuses bool           // the creates; else the machines die young

	mu      sync.Mutex
	creates map[string]int // by group
	last    time.Time      // creates of these groups
	deaths  int
}

// Create implements provider.Provider.
func (m *failingMachines) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	group := spec.Tags[provider.TagGroup]
	_, fails := m.others[group]
	m.mu.Lock()
	m.creates[group]++
	if fails {
		m.last = time.Now()
	}
	m.mu.Unlock()
	if fails && m.refuses {
		if err := retry.Wait(ctx, scaleUpCreate); err != nil {
			return provider.VM{}, err
		}
		return provider.VM{}, fmt.Errorf("args.flavor: no such flavor: %w", provider.ErrInvalid)
	}
	vm, err := m.watchedMachines.Create(ctx, spec)
	if err == nil && fails {
		time.AfterFunc(failingLife, func() {
			m.world.Kill(spec.ID)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.deaths++
		})
	}
	return vm, err
}

// failing reports whether each of the groups has failed more than once: either all were refused
// twice, or machines died and no more are created.
func (m *failingMachines) failing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuses {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(m.others)), func(group string) bool { return m.creates[group] < 2 })
	}
	return len(m.others) == 0 || m.deaths >= 2 && time.Since(m.last) > failingLife/2
}

func (m *failingMachines) created(group string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.creates[group]
}

// failed counts the creates of the failing groups.
func (m *failingMachines) failed() (n int) {
	for group := range m.others {
		n += m.created(group)
	}
	return n
}

// growBeside returns how long the group takes from 0 to its size, until the last create call, while
// the others fail. All limits are the config's defaults.
func (b *bench) growBeside(ctx context.Context, name string, m *failingMachines) (took time.Duration, err error) {
	dir, logger, closeLog, err := b.logged(name)
	if err != nil {
		return 0, err
	}
	defer closeLog()
	m.creates = map[string]int{}
	m.watchedMachines = watchedMachines{newMachines(fake.New(fake.Config{CreateLatency: fake.Fixed(scaleUpCreate)}))}
	store := mem.New(mem.Config{Latency: storeLatency})
	cluster, err := trust(ctx, store)
	if err != nil {
		return 0, err
	}
	addrs, err := prepare(ctx, store, shard{Size: 0, Others: m.others})
	if err != nil {
		return 0, err
	}
	stop := node{ID: "server", Store: store, Provider: m, CacheDir: dir, Addrs: addrs, Logger: logger}.start(ctx)
	defer func() {
		if stopErr := stop(); err == nil && stopErr != nil {
			err = fmt.Errorf("server: %w", stopErr)
		}
	}()
	op, err := newOperator(cluster.CA, addrs.Operator)
	if err != nil {
		return 0, err
	}
	defer op.close()
	first, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := op.scale(first, 0); err != nil { // answers once it leads
		return 0, err
	}
	if err := until(ctx, "the others fail", 3*time.Minute, m.failing); err != nil {
		return 0, err
	}
	if err := retry.Wait(ctx, failingRefill); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := op.scale(ctx, failingGrowth); err != nil {
		return 0, err
	}
	err = until(ctx, "all creates are issued", time.Minute, func() bool { return m.created(groupName) >= failingGrowth })
	return time.Since(began), err
}
