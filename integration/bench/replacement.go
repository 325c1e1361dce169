package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/retry"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	replacementAgents = 200
	storeLatency      = time.Millisecond
	statusLatency     = 5 * time.Millisecond
	// replacementOwn is the allowed time beside one store write and one status call.
	replacementOwn = 10 * time.Millisecond
	// replacementSettle is the time after which the agents' machines have settled: more than half of
	// them end, which would be an image that is broken if they had not.
	replacementSettle = 2 * time.Second
)

// replacements is a server with its store, its provider and 200 agents. The provider sends no
// events, like most clouds: it has to be polled.
type replacements struct {
	machines  *machines
	people    *population
	creations *creations

	mu    sync.Mutex
	calls map[fleet.InstanceID]time.Time // creates, with the time of the provider call
	fresh chan fleet.InstanceID
}

func (r *replacements) called(c fake.Call) {
	if c.Op != fake.OpCreate {
		return
	}
	r.mu.Lock()
	r.calls[c.Ref.ID] = c.Start
	r.mu.Unlock()
	r.fresh <- c.Ref.ID
}

// measureReplacement lets agents die one at a time, in three ways.
func measureReplacement(ctx context.Context, b *bench) ([]figure, error) {
	dir, logger, closeLog, err := b.logged("replacement")
	if err != nil {
		return nil, err
	}
	defer closeLog()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	r := &replacements{
		creations: newCreations(), calls: map[fleet.InstanceID]time.Time{}, fresh: make(chan fleet.InstanceID, 2*replacementAgents),
	}
	r.machines = newMachines(fake.New(fake.Config{
		GetLatency: fake.Fixed(statusLatency), Shutdown: fake.Fixed(50 * time.Millisecond), OnCall: r.called,
	}))
	r.people = newPopulation(ctx, logger)
	defer r.people.close()
	r.machines.created = r.people.born
	var store object.Store = watchedStore{mem.New(mem.Config{Latency: storeLatency}), r.creations.wrote}
	addrs, err := prepare(ctx, store, shard{
		Size: replacementAgents, Unlimited: true, NoDrain: true, Settle: replacementSettle.String(),
	})
	if err != nil {
		return nil, err
	}
	n := node{ID: "server", Store: store, Provider: r.machines, CacheDir: dir, Addrs: addrs, Logger: logger}
	stop := n.start(ctx)
	if err := errors.Join(r.settle(ctx), retry.Wait(ctx, replacementSettle)); err != nil {
		return nil, fmt.Errorf("%w (server: %w)", err, stop())
	}
	figures, err := b.profiled(ctx, "replacement", func() ([]figure, error) { return r.all(ctx) })
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	return figures, err
}

// all measures each of the three ways.
func (r *replacements) all(ctx context.Context) ([]figure, error) {
	var out []figure
	for _, way := range []struct {
		name string
		n    int
		end  func(context.Context, *member) (time.Time, error)
		asks bool // a status call is in progress
	}{
		{"replacement_disconnect", 120, r.kill, true},
		{"replacement_shutdown", 60, r.shutDown, true},
		{"replacement_notice", 60, r.announce, false},
	} {
		figures, err := r.series(ctx, way.name, way.n, way.asks, way.end)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		out = append(out, figures...)
	}
	return out, nil
}

// series ends n agents one after the other.
func (r *replacements) series(ctx context.Context, name string, n int, asks bool,
	end func(context.Context, *member) (time.Time, error)) ([]figure, error) {
	var total, own, write, status spread
	for range n {
		victim := r.people.take()
		at, err := end(ctx, victim)
		if err != nil {
			return nil, err
		}
		var id fleet.InstanceID
		select {
		case id = <-r.fresh:
		case <-time.After(10 * time.Second):
			return nil, fmt.Errorf("no replacement of %s after 10 s", victim.id)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		victim.stop()
		took := r.calledAt(id).Sub(at)
		wrote := r.creations.of(recordKey(fleet.Instance{ID: id, Tenant: fleet.DefaultTenant}))
		var asked time.Duration
		if asks {
			asked = r.machines.statusTook(victim.id)
		}
		total, write, status = append(total, took), append(write, wrote), append(status, asked)
		own = append(own, took-wrote-asked)
		if err := r.settle(ctx); err != nil {
			return nil, err
		}
	}
	figures := []figure{
		newFigure(name+"_p50", milliseconds(total.median()), "ms", n),
		newFigure(name+"_p99", milliseconds(total.p99()), "ms", n).
			noted("all of it: a store write (p50 %.1f, p99 %.1f ms) and a status call (p50 %.1f, p99 %.1f ms) are in it",
				milliseconds(write.median()), milliseconds(write.p99()), milliseconds(status.median()), milliseconds(status.p99())),
	}
	own99 := own.p50p99(name+"_own", "ms", time.Millisecond, milliseconds(replacementOwn))
	own99[1] = own99[1].noted("beyond that write and that call, as each was")
	figures = append(figures, own99...)
	return figures, nil
}

func (r *replacements) calledAt(id fleet.InstanceID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[id]
}

// settle waits until every agent reports again, drops the creates in between, and then waits a
// moment, so that deaths don't overlap.
func (r *replacements) settle(ctx context.Context) error {
	if err := until(ctx, "200 agents report", time.Minute, func() bool { return r.people.reporting() >= replacementAgents }); err != nil {
		return err
	}
	for len(r.fresh) > 0 {
		<-r.fresh
	}
	return retry.Wait(ctx, 60*time.Millisecond)
}

// kill stops a VM and cuts its agent's connection.
func (r *replacements) kill(_ context.Context, m *member) (time.Time, error) {
	r.machines.world.Kill(m.id)
	return m.die(), nil
}

// shutDown shuts a VM down from inside: its agent gets SIGTERM.
func (r *replacements) shutDown(_ context.Context, m *member) (time.Time, error) {
	r.machines.world.Stop(m.id)
	at := time.Now()
	m.stop()
	return at, nil
}

// announce reports a spot notice on a new health stream of the same agent, which replaces the open
// one.
func (r *replacements) announce(ctx context.Context, m *member) (time.Time, error) {
	client, err := newClient(m.endpoint, m.addrs, nil)
	if err != nil {
		return time.Time{}, err
	}
	context.AfterFunc(ctx, client.Close)
	target, err := client.Target()
	if err != nil {
		return time.Time{}, err
	}
	stream, err := nstancev1.NewAgentServiceClient(target.Conn).ReportHealth(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if err := stream.Send(&nstancev1.ReportHealthRequest{Sequence: 1, Version: "bench"}); err != nil {
		return time.Time{}, err
	}
	if err := retry.Wait(ctx, 20*time.Millisecond); err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	return at, stream.Send(&nstancev1.ReportHealthRequest{
		Sequence: 2, Version: "bench",
		Termination: &nstancev1.TerminationNotice{Source: "spot", Action: "terminate", At: timestamppb.New(at.Add(2 * time.Minute))},
	})
}
