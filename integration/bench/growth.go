package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server"
)

const (
	growthEvents  = 20 // of one size
	growthRefused = 3
	growthShrink  = 9_000
	growthDelete  = 20 * time.Millisecond
)

// measureGrowth measures what an event costs in shards of three sizes, each of which should cost what it
// changes, whatever is there.
func measureGrowth(ctx context.Context, b *bench) (figures []figure, err error) {
	for _, part := range []struct {
		name    string
		sizes   []int
		measure func(context.Context, *bench, string, int) ([]figure, error)
	}{
		{"growth_death", []int{100, 1_000, 9_000}, deathsAmong},
		{"growth_birth", []int{0, 1_500, 4_500}, birthsBeside},
		{"growth_refused", []int{100, 1_000, 9_000}, refusedRemovalOf},
		{"growth_files", []int{3, 20, 200}, changesAmongFiles},
		{"growth_shrink", []int{growthShrink}, shrinkFrom},
	} {
		for _, n := range part.sizes {
			name := fmt.Sprintf("%s_%d", part.name, n)
			more, err := b.profiled(ctx, name, func() ([]figure, error) { return part.measure(ctx, b, name, n) })
			if err != nil {
				return figures, fmt.Errorf("%s: %w", name, err)
			}
			figures = append(figures, more...)
		}
	}
	return figures, nil
}

// grown is a server in this process that leads a shard with instances.
type grown struct {
	operator *operator
	machines watchedMachines
	store    object.Store
	created  atomic.Int64
}

// withGrown measures on a server that finds the shard's records and their machines. Their agents are not
// connected: the measurements are over before that counts.
func (b *bench) withGrown(ctx context.Context, name string, s shard, records []fleet.Instance,
	measure func(*grown) ([]figure, error),
) (figures []figure, err error) {
	dir, logger, closeLog, err := b.logged(name)
	if err != nil {
		return nil, err
	}
	defer closeLog()
	world := fake.New(fake.Config{DeleteLatency: fake.Fixed(growthDelete)})
	g := &grown{store: mem.New(mem.Config{HashETags: true}), machines: watchedMachines{newMachines(world)}}
	g.machines.created = func(provider.Spec) { g.created.Add(1) }
	cluster, err := trust(ctx, g.store)
	if err != nil {
		return nil, err
	}
	addrs, err := g.fill(ctx, s, records)
	if err != nil {
		return nil, err
	}
	stop := node{ID: "server", Store: g.store, Provider: g.machines, CacheDir: dir, Addrs: addrs, Logger: logger}.start(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if g.operator, err = newOperator(cluster.CA, addrs.Operator); err != nil {
		return nil, err
	}
	defer g.operator.close()
	first, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := g.operator.scale(first, int32(s.Size)); err != nil { // answers once it leads
		return nil, err
	}
	return measure(g)
}

// fill stores what the server finds.
func (g *grown) fill(ctx context.Context, s shard, records []fleet.Instance) (server.Endpoints, error) {
	objects, err := s.objects(records)
	if err != nil {
		return server.Endpoints{}, err
	}
	delete(objects, configKey) // prepare stores it
	if err := fill(ctx, g.store, objects); err != nil {
		return server.Endpoints{}, err
	}
	if err := g.machines.plant(ctx, records); err != nil {
		return server.Endpoints{}, err
	}
	return prepare(ctx, g.store, s)
}

// each returns the figures of a number of events, each of which do causes and awaits. Event 0, with which
// connections and caches begin, does not count, nor does what the server does after it took over.
func each(ctx context.Context, name string, events int, do func(n int) error) (cpu, allocated figure, err error) {
	if err := calm(ctx); err != nil {
		return cpu, allocated, err
	}
	if err := do(0); err != nil {
		return cpu, allocated, err
	}
	if err := calm(ctx); err != nil {
		return cpu, allocated, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, err := cpuOf(func() error {
		for n := range events {
			if err := do(n + 1); err != nil {
				return err
			}
		}
		return nil
	})
	runtime.ReadMemStats(&after)
	cpu = newFigure(name+"_cpu", milliseconds(used)/float64(events), "ms", events)
	allocated = newFigure(name+"_allocated", float64(after.TotalAlloc-before.TotalAlloc)/float64(events)/1000, "kB", events)
	return cpu, allocated, err
}

const (
	growthCalm    = 500 * time.Millisecond
	growthCalmCPU = 10 * time.Millisecond // of that
)

// calm waits until this process has hardly done anything for a moment.
func calm(ctx context.Context) error {
	for range 120 {
		used, err := cpuOf(func() error { return retry.Wait(ctx, growthCalm) })
		if err != nil || used <= growthCalmCPU {
			return err
		}
	}
	return fmt.Errorf("the process is busy for %v after it began", 120*growthCalm)
}
