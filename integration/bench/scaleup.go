package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/provider/fake"
)

const (
	scaleUpSize   = 1000
	scaleUpCreate = 50 * time.Millisecond
)

// measureScaleUp asks for 1,000 instances and waits for the last create call.
// The config's concurrency stays at its default; only the rate is unlimited.
func measureScaleUp(ctx context.Context, b *bench) ([]figure, error) {
	dir, logger, closeLog, err := b.logged("scaleup")
	if err != nil {
		return nil, err
	}
	defer closeLog()
	var creates atomic.Int64
	machines := newMachines(fake.New(fake.Config{CreateLatency: fake.Fixed(scaleUpCreate), OnCall: func(c fake.Call) {
		if c.Op == fake.OpCreate {
			creates.Add(1)
		}
	}}))
	store := mem.New(mem.Config{Latency: storeLatency})
	cluster, err := trust(ctx, store)
	if err != nil {
		return nil, err
	}
	addrs, err := prepare(ctx, store, shard{Size: 0, Unlimited: true})
	if err != nil {
		return nil, err
	}
	n := node{ID: "server", Store: store, Provider: machines, CacheDir: dir, Addrs: addrs, Logger: logger}
	stop := n.start(ctx)
	figures, err := b.profiled(ctx, "scaleup", func() ([]figure, error) {
		op, err := newOperator(cluster.CA, addrs.Operator)
		if err != nil {
			return nil, err
		}
		defer op.close()
		first, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := op.scale(first, 0); err != nil { // answered once it leads
			return nil, err
		}
		began := time.Now()
		if err := op.scale(ctx, scaleUpSize); err != nil {
			return nil, err
		}
		answered := time.Since(began)
		err = until(ctx, "1,000 creates are issued", time.Minute, func() bool { return creates.Load() >= scaleUpSize })
		took := time.Since(began)
		return []figure{newFigure("scaleup_1000", took.Seconds(), "s", scaleUpSize).atMost(5).
			noted("16 creates at a time by default; the request itself was answered after %.1f ms", milliseconds(answered))}, err
	})
	if stopErr := stop(); err == nil && stopErr != nil {
		err = fmt.Errorf("server: %w", stopErr)
	}
	return figures, err
}
