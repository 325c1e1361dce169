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

const (
	scaleUpLarge     = 10_000
	scaleUpSmallRuns = 5 // a single one is too short for a comparison
)

// measureScaleUp requests 1,000 instances and waits for the last create call, with the config's
// default concurrency and an unlimited rate. Then it does so for 1,000 and 10,000 with a provider
// and a store without delays, which leaves only the server's own work, and compares the cost per
// instance.
func measureScaleUp(ctx context.Context, b *bench) ([]figure, error) {
	return b.profiled(ctx, "scaleup", func() ([]figure, error) {
		took, answered, err := scaleUp(ctx, b, scaleUpSize, scaleUpCreate, storeLatency)
		if err != nil {
			return nil, err
		}
		figures := []figure{newFigure("scaleup_1000", took.Seconds(), "s", scaleUpSize).atMost(5).
			noted("16 creates at a time by default; the request itself was answered after %.1f ms", milliseconds(answered))}
		more, err := scaleUpGrowth(ctx, b)
		return append(figures, more...), err
	})
}

// scaleUpGrowth compares a large group with a small one, in elapsed time and in CPU time, which
// other load does not affect.
func scaleUpGrowth(ctx context.Context, b *bench) ([]figure, error) {
	took, used := map[int]time.Duration{}, map[int]time.Duration{}
	for n, runs := range map[int]int{scaleUpSize: scaleUpSmallRuns, scaleUpLarge: 1} {
		cpu, err := cpuOf(func() error {
			for range runs {
				one, _, err := scaleUp(ctx, b, n, 0, 0)
				if err != nil {
					return err
				}
				took[n] += one / time.Duration(runs)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		used[n] = cpu / time.Duration(runs)
	}
	each := func(of map[int]time.Duration, n int) float64 { return of[n].Seconds() / float64(n) }
	growth := func(of map[int]time.Duration) float64 { return each(of, scaleUpLarge) / each(of, scaleUpSize) }
	return []figure{
		newFigure("scaleup_growth", growth(took), "x", 2).atMost(1.5).
			noted("time per instance from 0 to 10,000, in %.2f s, over that from 0 to 1,000, in %.2f s; provider and store take no time",
				took[scaleUpLarge].Seconds(), took[scaleUpSize].Seconds()),
		newFigure("scaleup_cpu_growth", growth(used), "x", 2).
			noted("the same of CPU time, %.2f and %.2f s with start and stop", used[scaleUpLarge].Seconds(), used[scaleUpSize].Seconds()),
	}, nil
}

// scaleUp returns the time from 0 to n, until the last create call, and how long the call to the
// server took.
func scaleUp(ctx context.Context, b *bench, n int, create, write time.Duration) (took, answered time.Duration, err error) {
	dir, logger, closeLog, err := b.logged(fmt.Sprintf("scaleup-%d-%s", n, create))
	if err != nil {
		return 0, 0, err
	}
	defer closeLog()
	var creates atomic.Int64
	machines := newMachines(fake.New(fake.Config{CreateLatency: fake.Fixed(create), OnCall: func(c fake.Call) {
		if c.Op == fake.OpCreate {
			creates.Add(1)
		}
	}}))
	store := mem.New(mem.Config{Latency: write})
	cluster, err := trust(ctx, store)
	if err != nil {
		return 0, 0, err
	}
	addrs, err := prepare(ctx, store, shard{Size: 0, Unlimited: true})
	if err != nil {
		return 0, 0, err
	}
	s := node{ID: "server", Store: store, Provider: machines, CacheDir: dir, Addrs: addrs, Logger: logger}
	stop := s.start(ctx)
	defer func() {
		if stopErr := stop(); err == nil && stopErr != nil {
			err = fmt.Errorf("server: %w", stopErr)
		}
	}()
	op, err := newOperator(cluster.CA, addrs.Operator)
	if err != nil {
		return 0, 0, err
	}
	defer op.close()
	first, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := op.scale(first, 0); err != nil { // answers once it leads
		return 0, 0, err
	}
	began := time.Now()
	if err := op.scale(ctx, int32(n)); err != nil {
		return 0, 0, err
	}
	answered = time.Since(began)
	err = until(ctx, fmt.Sprintf("%d creates are issued", n), 5*time.Minute, func() bool { return creates.Load() >= int64(n) })
	return time.Since(began), answered, err
}
