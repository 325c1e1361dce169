package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// measurePlanner measures a decision about one group: when all is well, with one instance in a
// hundred dead, draining or a tombstone, and half-way through a rotation.
func measurePlanner(ctx context.Context, b *bench) ([]figure, error) {
	return b.profiled(ctx, "planner", func() ([]figure, error) {
		perPass := map[int]float64{}
		var out []figure
		for _, size := range []int{1_000, 10_000, 100_000} {
			v, err := planView(size, false)
			if err != nil {
				return nil, err
			}
			r := timePlan(v)
			if r.N == 0 {
				return nil, errors.New("benchmark did not run")
			}
			perPass[size] = float64(r.T) / float64(r.N)
			f := newFigure(fmt.Sprintf("planner_%d", size), perPass[size]/float64(time.Millisecond), "ms", r.N)
			if size == 10_000 {
				f = f.atMost(1)
			}
			out = append(out, f)
		}
		v, err := planView(10_000, true)
		if err != nil {
			return nil, err
		}
		r := timePlan(v)
		out = append(out, newFigure("planner_10000_busy", milliseconds(r.T)/float64(r.N), "ms", r.N).atMost(1).
			noted("1 %% dead, 1 %% draining, 1 %% tombstones"))
		if v, err = planView(10_000, false); err != nil {
			return nil, err
		}
		rotate(&v)
		r = timePlan(v)
		out = append(out, newFigure("planner_10000_rotating", milliseconds(r.T)/float64(r.N), "ms", r.N).atMost(1).
			noted("half are stale; of the 5 %% beyond the size half have settled"))
		// A view of 100,000 exceeds the CPU's caches, one of 1,000 does not: hence the allowed
		// factor of 2 for a hundredfold view.
		growth := perPass[100_000] / perPass[1_000] / 100
		return append(out, newFigure("planner_growth", growth, "x", 2).atMost(2).
			noted("time per instance at 100,000 over that at 1,000; 1 is linear")), nil
	})
}

func timePlan(v plan.View) testing.BenchmarkResult {
	return testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			plan.Next(v)
		}
	})
}

// planView returns a group of the given size at 09:00 on a day without events.
func planView(size int, busy bool) (plan.View, error) {
	now := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	v := plan.View{
		Now:   now,
		Group: fleet.Group{Key: groupKey(), Kind: kind, Size: size, DrainTimeout: 5 * time.Minute},
		Settings: plan.Settings{
			ReportInterval: time.Minute, MissedReports: 3, ShutdownGrace: 30 * time.Second,
			RegistrationTimeout: 5 * time.Minute, DeletedRetention: 30 * time.Minute,
		},
		Takeover: now.Add(-time.Hour),
	}
	for n := range size {
		id, err := fleet.NewID(kind, now.Add(-24*time.Hour+time.Duration(n)*time.Millisecond), rand.Reader)
		if err != nil {
			return plan.View{}, err
		}
		registered := id.Time().Add(30 * time.Second)
		i := plan.Instance{
			Instance: &fleet.Instance{
				ID: id, Tenant: fleet.DefaultTenant, Group: groupName, Phase: fleet.Running,
				CreatedAt: id.Time(), RegisteredAt: &registered, Provider: fleet.ProviderRef{ID: "vm-" + string(id)},
			},
			VM:     plan.VMAlive,
			Health: plan.Health{Connected: true, LastReportAt: now.Add(-time.Duration(n%60) * time.Second)},
		}
		if busy {
			disturb(&i, n, now)
		}
		v.Instances = append(v.Instances, i)
	}
	return v, nil
}

// disturb makes three instances in a hundred need a decision.
func disturb(i *plan.Instance, n int, now time.Time) {
	switch n % 100 {
	case 0:
		i.VM, i.Health.Connected = plan.VMGone, false
	case 1:
		i.Phase, i.Drain = fleet.Draining, &fleet.Drain{Reason: plan.ReasonUnhealthy, DeleteAt: now.Add(time.Minute)}
	case 2:
		gone := now.Add(-time.Minute)
		i.Phase, i.DeletedAt, i.VM = fleet.Deleted, &gone, plan.VMGone
	default:
	}
}

// rotate makes the older half of a group outdated, and adds 5 % beyond its size, of which one half
// replaces those that leave and the other has not settled.
func rotate(v *plan.View) {
	beyond := len(v.Instances) / 20
	v.Group.Size, v.Group.MaxSurge, v.Group.Hashes.Infra = len(v.Instances)-beyond, fleet.Surge{Percent: 10}, "new"
	v.Surge, v.Settings.Settle, v.Settings.EligibleAge = 2*beyond, 2*time.Minute, 30*24*time.Hour
	for n := range v.Instances {
		i := &v.Instances[n]
		switch i.Hashes.Infra = "new"; {
		case n < len(v.Instances)/2:
			i.Hashes.Infra = "old"
		case n >= len(v.Instances)-beyond/2:
			registered := v.Now.Add(-time.Minute)
			i.RegisteredAt = &registered
		}
	}
}
