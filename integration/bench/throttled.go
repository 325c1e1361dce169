package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

const (
	throttledSize   = 200
	throttledRate   = 2 // creates and deletes a second that the provider accepts
	throttledBurst  = 1
	throttledCreate = 50 * time.Millisecond
)

// measureThrottled requests 200 instances of a provider that accepts two a second, with an
// unlimited rate in the config, and waits for the last machine.
func measureThrottled(ctx context.Context, b *bench) ([]figure, error) {
	dir, logger, closeLog, err := b.logged("throttled")
	if err != nil {
		return nil, err
	}
	defer closeLog()
	world := fake.New(fake.Config{CreateLatency: fake.Fixed(throttledCreate), Throttles: []fake.Throttle{
		{Ops: []fake.Op{fake.OpCreate, fake.OpDelete}, PerSecond: throttledRate, Burst: throttledBurst},
	}})
	store := mem.New(mem.Config{Latency: storeLatency})
	cluster, err := trust(ctx, store)
	if err != nil {
		return nil, err
	}
	addrs, err := prepare(ctx, store, shard{Size: 0, Unlimited: true})
	if err != nil {
		return nil, err
	}
	n := node{ID: "server", Store: store, Provider: newMachines(world), CacheDir: dir, Addrs: addrs, Logger: logger}
	stop := n.start(ctx)
	figures, err := b.profiled(ctx, "throttled", func() ([]figure, error) {
		op, err := newOperator(cluster.CA, addrs.Operator)
		if err != nil {
			return nil, err
		}
		defer op.close()
		first, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := op.scale(first, 0); err != nil { // answers once it leads
			return nil, err
		}
		began := time.Now()
		if err := op.scale(ctx, throttledSize); err != nil {
			return nil, err
		}
		err = until(ctx, "200 machines are made", 10*time.Minute, func() bool { return len(world.VMs()) >= throttledSize })
		if err != nil {
			return nil, err
		}
		took := time.Since(began)
		records, err := readRecords(ctx, store)
		return throttledFigures(world, took, records), err
	})
	if stopErr := stop(); err == nil && stopErr != nil {
		err = fmt.Errorf("server: %w", stopErr)
	}
	return figures, err
}

func throttledFigures(world *fake.World, took time.Duration, records []fleet.Instance) []figure {
	refusals, tombstones := 0, 0
	for _, c := range world.Calls(fake.OpCreate) {
		if errors.Is(c.Err, provider.ErrThrottled) {
			refusals++
		}
	}
	for _, r := range records {
		if r.Phase == fleet.Deleted {
			tombstones++
		}
	}
	ideal := time.Duration(throttledSize-throttledBurst) * time.Second / throttledRate
	return []figure{
		newFigure("throttled_over_ideal", took.Seconds()/ideal.Seconds(), "×", throttledSize).atMost(1.15).
			noted("%.1f s, where a provider that is asked at exactly its pace takes %.1f s", took.Seconds(), ideal.Seconds()),
		newFigure("throttled_refusals", float64(refusals), "calls", throttledSize).atMost(30),
		newFigure("throttled_records_too_many", float64(len(records)-throttledSize), "records", throttledSize).atMost(0).
			noted("%d of %d records are tombstones", tombstones, len(records)),
	}
}
