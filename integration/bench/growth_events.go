package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// deathsAmong lets machines of a group die, one after the other, until each is replaced.
func deathsAmong(ctx context.Context, b *bench, name string, size int) ([]figure, error) {
	s := shard{Size: size, Unlimited: true, NoDrain: true, Settle: "0s"} // so that a death is no failed create
	records, err := s.records(fleet.Running, time.Now())
	if err != nil {
		return nil, err
	}
	return b.withGrown(ctx, name, s, records, func(g *grown) ([]figure, error) {
		cpu, allocated, err := each(ctx, name, growthEvents, func(n int) error {
			g.machines.world.Kill(records[n].ID)
			return until(ctx, "the machine is replaced", 10*time.Second, func() bool { return g.created.Load() > int64(n) })
		})
		return []figure{cpu.atMost(4), allocated.atMost(200)}, err
	})
}

// birthsBeside creates on-demand instances, one after the other, in a group with n of them.
func birthsBeside(ctx context.Context, b *bench, name string, n int) ([]figure, error) {
	records, err := shard{Size: n}.records(fleet.Running, time.Now())
	if err != nil {
		return nil, err
	}
	for i := range records {
		records[i].OnDemand = true
	}
	return b.withGrown(ctx, name, shard{Unlimited: true, NoDrain: true}, records, func(g *grown) ([]figure, error) {
		cpu, _, err := each(ctx, name, growthEvents, func(n int) error {
			if err := g.operator.createOne(ctx); err != nil {
				return err
			}
			return until(ctx, "the machine is created", 10*time.Second, func() bool { return g.created.Load() > int64(n) })
		})
		return []figure{cpu.atMost(0.5).noted("the client's part included")}, err
	})
}

// createOne creates an on-demand instance.
func (o *operator) createOne(ctx context.Context) error {
	return o.client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := nstancev1.NewOperatorServiceClient(conn).CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: groupName})
		return err
	})
}

// refusedRemovalOf refreshes a config that lacks all but one of so many groups, each with an instance.
func refusedRemovalOf(ctx context.Context, b *bench, name string, groups int) ([]figure, error) {
	s := shard{Size: 1, Groups: groups, Unlimited: true, NoDrain: true}
	records, err := s.records(fleet.Running, time.Now())
	if err != nil {
		return nil, err
	}
	return b.withGrown(ctx, name, s, records, func(g *grown) ([]figure, error) {
		body, err := shard{Size: 1, Unlimited: true, NoDrain: true}.config()
		if err != nil {
			return nil, err
		}
		if _, err := g.store.Put(ctx, configKey, body, object.Precondition{}); err != nil {
			return nil, err
		}
		cpu, _, err := each(ctx, name, growthRefused, func(int) error {
			if err := g.operator.refresh(ctx); status.Code(err) != codes.FailedPrecondition {
				return fmt.Errorf("the refresh was not refused: %w", err)
			}
			return nil
		})
		if groups == growthShrink {
			cpu = cpu.atMost(250)
		}
		return []figure{cpu}, err
	})
}

func (o *operator) refresh(ctx context.Context) error {
	return o.client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := nstancev1.NewOperatorServiceClient(conn).RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{})
		return err
	})
}

// shrinkFrom scales a group to nothing, until its machines are gone.
func shrinkFrom(ctx context.Context, b *bench, name string, size int) ([]figure, error) {
	s := shard{Size: size, Unlimited: true, NoDrain: true}
	records, err := s.records(fleet.Running, time.Now())
	if err != nil {
		return nil, err
	}
	return b.withGrown(ctx, name, s, records, func(g *grown) ([]figure, error) {
		before, most := runtime.NumGoroutine(), 0
		began := time.Now()
		if err := g.operator.scale(ctx, 0); err != nil {
			return nil, err
		}
		err = until(ctx, "the machines are gone", 5*time.Minute, func() bool {
			most = max(most, runtime.NumGoroutine())
			return len(g.machines.world.VMs()) == 0
		})
		return []figure{newFigure(name+"_goroutines", float64(most-before), "goroutines", size).atMost(200).
			noted("beyond those before; %.1f s", time.Since(began).Seconds())}, err
	})
}
