package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

type benchBuilder struct{}

func (benchBuilder) Build(_ context.Context, i fleet.Instance, g fleet.Group) (provider.Spec, error) {
	return provider.Spec{ID: i.ID, Arch: g.Arch, InstanceType: g.InstanceType, Tags: scope.Tags(i)}, nil
}

// BenchmarkReplacementStart kills one of 200 running instances at a time, and measures the time
// from its broken stream to the provider's create call. Store and provider answer at once, so
// only the loop's own time is measured.
func BenchmarkReplacementStart(b *testing.B) {
	const size = 200
	created := make(chan fleet.InstanceID, 2*size)
	var called time.Time
	world := fake.New(fake.Config{OnCall: func(c fake.Call) {
		if c.Op == fake.OpCreate {
			called = time.Now()
			created <- c.Ref.ID
		}
	}})
	l, loop, w := benchLoop(b, unwatched{world.Open(scope, "server")})
	w.edit(web, func(g *fleet.Group) { g.Size = size })
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()

	register := func(id fleet.InstanceID) {
		for {
			now := time.Now()
			r, _ := l.Get(id)
			if r.Provider.ID == "" {
				time.Sleep(100 * time.Microsecond) // its create is being recorded
				continue
			}
			if _, err := l.Update(ctx, id, func(i *fleet.Instance) error {
				i.Phase, i.RegisteredAt = fleet.Running, &now
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			loop.Registered(id)
			loop.AgentConnected(id)
			loop.AgentReport(id, fleet.Report{At: now})
			return
		}
	}
	var live []fleet.InstanceID
	for range size {
		id := <-created
		register(id)
		live = append(live, id)
	}
	var took []time.Duration
	b.ResetTimer()
	for b.Loop() {
		world.Kill(live[0])
		began := time.Now()
		loop.AgentDisconnected(live[0], began)
		id := <-created
		took = append(took, called.Sub(began))
		b.StopTimer()
		register(id)
		live = append(live[1:], id)
		b.StartTimer()
	}
	b.StopTimer()
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[min(len(took)-1, int(q*float64(len(took))))].Microseconds()) / 1000
	}
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	fmt.Printf("{\"name\":\"replacement start, own share\",\"value\":%.3f,\"unit\":\"ms p99\",\"n\":%d}\n", at(0.99), len(took))
}

// BenchmarkScaleUp takes a group from nothing to 1,000 instances with a provider
// that needs 50 ms for each, and measures until the last create is called.
func BenchmarkScaleUp(b *testing.B) {
	const size = 1000
	for b.Loop() {
		created := make(chan struct{}, size)
		world := fake.New(fake.Config{CreateLatency: fake.Fixed(50 * time.Millisecond), OnCall: func(c fake.Call) {
			if c.Op == fake.OpCreate {
				created <- struct{}{}
			}
		}})
		_, loop, w := benchLoop(b, world.Open(scope, "server"))
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- loop.Run(ctx) }()
		w.edit(web, func(g *fleet.Group) { g.Size = size })
		loop.Enqueue(web)
		for range size {
			<-created
		}
		b.StopTimer()
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		b.StartTimer()
	}
}

// noProblems fails a benchmark with each problem.
type noProblems struct{ b *testing.B }

func (f noProblems) Set(p fleet.Problem)                          { f.b.Error(p.Message) }
func (noProblems) Clear(fleet.GroupKey, fleet.InstanceID, string) {}

// benchLoop is a loop on a store that answers at once.
func benchLoop(b *testing.B, p provider.Provider) (*ledger, *reconcile.Loop, *wanted) {
	b.Helper()
	random := rand.NewChaCha8([32]byte{1})
	w := &wanted{groups: map[fleet.GroupKey]fleet.Group{}, settings: plan.Settings{ReportInterval: time.Minute, MissedReports: 3}}
	l := newBucket().lead()
	loop, err := reconcile.New(reconcile.Config{
		Ledger: l, Fence: l, Groups: w, Builder: benchBuilder{}, Provider: p,
		NewID:         func(kind string, now time.Time) (fleet.InstanceID, error) { return fleet.NewID(kind, now, random) },
		CreateBackoff: time.Minute, Uniform: func() float64 { return 0.5 },
		CreateRate: fair.Rate{Concurrency: 16}, RequestTimeout: time.Minute, SweepInterval: time.Hour, FirstSweep: time.Hour,
		Quiet: time.Hour, Called: func(fleet.InstanceID) time.Time { return time.Time{} },
		Problems: noProblems{b},
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	return l, loop, w
}
