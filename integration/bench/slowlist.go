package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	slowListSize   = 300
	slowListDeaths = 20
	slowListTakes  = 6 * time.Second
	slowListCall   = 50 * time.Millisecond // every other call
	slowListEnd    = 10 * time.Second      // a machine, from its delete until it is gone
)

// slowListScene is a shard whose provider lists slowly and sends no events.
type slowListScene struct {
	store   object.Store
	world   *fake.World
	people  *population
	op      *operator
	creates atomic.Int64
	asked   atomic.Int64 // status calls
}

func (s *slowListScene) called(c fake.Call) {
	switch c.Op {
	case fake.OpCreate:
		s.creates.Add(1)
	case fake.OpGet:
		s.asked.Add(1)
	default:
	}
}

// measureSlowList lets 20 of 300 machines die at once, and then scales to none, while a list takes
// longer than a status call may.
func measureSlowList(ctx context.Context, b *bench) ([]figure, error) {
	dir, logger, closeLog, err := b.logged("slowlist")
	if err != nil {
		return nil, err
	}
	defer closeLog()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	s := &slowListScene{store: mem.New(mem.Config{Latency: storeLatency}), people: newPopulation(ctx, logger)}
	defer s.people.close()
	each := fake.Fixed(slowListCall)
	s.world = fake.New(fake.Config{
		CreateLatency: each, GetLatency: each, DeleteLatency: each, ListLatency: fake.Fixed(slowListTakes),
		Shutdown: fake.Fixed(slowListEnd), OnCall: s.called,
	})
	machines := newMachines(s.world)
	machines.created = s.people.born
	cluster, err := trust(ctx, s.store)
	if err != nil {
		return nil, err
	}
	addrs, err := prepare(ctx, s.store, shard{Size: slowListSize, Unlimited: true, NoDrain: true})
	if err != nil {
		return nil, err
	}
	if s.op, err = newOperator(cluster.CA, addrs.Operator); err != nil {
		return nil, err
	}
	defer s.op.close()
	n := node{ID: "server", Store: s.store, Provider: machines, CacheDir: dir, Addrs: addrs, Logger: logger}
	stop := n.start(ctx)
	figures, err := b.profiled(ctx, "slowlist", func() ([]figure, error) { return s.both(ctx) })
	return figures, errors.Join(err, stop())
}

func (s *slowListScene) both(ctx context.Context) ([]figure, error) {
	deaths, err := s.deaths(ctx)
	if err != nil {
		return nil, err
	}
	end, err := s.end(ctx)
	return []figure{deaths, end}, err
}

// settle waits until every agent reports.
func (s *slowListScene) settle(ctx context.Context) error {
	return until(ctx, "300 agents report", 2*time.Minute, func() bool { return s.people.reporting() >= slowListSize })
}

// deaths stops machines at once, and waits for the creates of their replacements.
func (s *slowListScene) deaths(ctx context.Context) (figure, error) {
	if err := s.settle(ctx); err != nil {
		return figure{}, err
	}
	creates, asked, began := s.creates.Load(), s.asked.Load(), time.Now()
	for range slowListDeaths {
		victim := s.people.take()
		s.world.Kill(victim.id)
		victim.die()
		defer victim.stop()
	}
	err := until(ctx, "20 replacements are asked for", 2*time.Minute, func() bool { return s.creates.Load()-creates >= slowListDeaths })
	return newFigure("slowlist_20_deaths", time.Since(began).Seconds(), "s", slowListDeaths).atMost(2).
		noted("%d status calls", s.asked.Load()-asked), err
}

// end scales to none, and waits until only tombstones are left.
func (s *slowListScene) end(ctx context.Context) (figure, error) {
	if err := s.settle(ctx); err != nil {
		return figure{}, err
	}
	asked, began := s.asked.Load(), time.Now()
	if err := s.op.scale(ctx, 0); err != nil {
		return figure{}, err
	}
	for left := slowListSize; left > 0; {
		if time.Since(began) > 10*time.Minute {
			return figure{}, fmt.Errorf("%w for %d of %d instances to end", errTooLate, left, slowListSize)
		}
		if err := retry.Wait(ctx, 100*time.Millisecond); err != nil {
			return figure{}, err
		}
		records, err := readRecords(ctx, s.store)
		if err != nil {
			return figure{}, err
		}
		left = 0
		for _, r := range records {
			if r.Phase != fleet.Deleted {
				left++
			}
		}
	}
	return newFigure("slowlist_300_to_0", time.Since(began).Seconds(), "s", slowListSize).atMost(120).
		noted("%d status calls; each machine takes %s to go", s.asked.Load()-asked, slowListEnd), nil
}
