package shards

import (
	"context"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/retry"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// listEvery is after how many polls instances are listed, too. The streams do not report when
// a tombstone expires.
const listEvery = 20

// steadyAfter is how long streams must have worked for the back-off to be reset.
const steadyAfter = time.Minute

// patience returns the back-off for streams that a leader refused.
func patience() retry.Backoff {
	return retry.Backoff{First: time.Second, Limit: 30 * time.Second, Least: 200 * time.Millisecond}
}

// follower follows one shard at its addresses in one term.
type follower struct {
	set   *Set
	m     *memory
	shard client.Shard
	term  uint64
	run   func() // until ctx ends
	stop  context.CancelFunc
}

func follow(ctx context.Context, s *Set, m *memory) *follower {
	ctx, stop := context.WithCancel(ctx)
	f := &follower{set: s, m: m, stop: stop}
	f.shard, f.term, _ = m.shard()
	f.run = func() {
		defer stop()
		var all sync.WaitGroup
		all.Go(func() { f.watch(ctx) })
		all.Go(func() { f.poll(ctx) })
		all.Go(func() { f.inquire(ctx) })
		all.Wait()
		if s.memory(f.shard.ID) == nil {
			s.cfg.Client.Forget(f.shard.ID) // it may have been called again after Forget
		}
	}
	return f
}

// current reports whether the shard still has the followed addresses.
func (f *follower) current() bool {
	_, term, _ := f.m.shard()
	return term == f.term
}

// watch keeps the shard's streams open, and reopens them after they end.
func (f *follower) watch(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		f.set.listeners.send(f.m.restart(f.term))
		cut, err := f.stream(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case cut:
			failures = 0
			continue
		}
		f.set.listeners.send(f.m.ended(f.term, err))
		if time.Since(began) > steadyAfter {
			failures = 1
		}
		if retry.Wait(ctx, patience().Draw(failures, f.set.cfg.Random)) != nil {
			return
		}
	}
}

// stream opens the streams of this shard alone, until they end or, if cut, a restart is
// requested: a watch of several shards would end with the first refusal.
func (f *follower) stream(ctx context.Context) (cut bool, err error) {
	of := []string{client.WatchGroups, client.WatchAllInstances, client.WatchProblems}
	ctx, cancel := context.WithCancel(ctx)
	var waits sync.WaitGroup
	waits.Go(func() {
		select {
		case <-ctx.Done():
		case <-f.m.doubt:
			cut = true
			cancel()
		}
	})
	err = f.set.cfg.Client.Watch(ctx, []client.Shard{f.shard}, of, func(e client.Event) error {
		f.set.listeners.send(f.m.hear(f.term, e))
		return nil
	})
	cancel()
	waits.Wait()
	return cut, err
}

// poll periodically lists what the streams should have reported.
func (f *follower) poll(ctx context.Context) {
	wait := time.NewTicker(f.set.cfg.Poll)
	defer wait.Stop()
	for n := 1; ; n++ {
		f.listGroups(ctx)
		if n%listEvery == 0 {
			f.listInstances(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		case <-f.m.hurt:
		}
	}
}

func (f *follower) listGroups(ctx context.Context) {
	_, _, asked := f.m.shard()
	answer, err := callShard(ctx, f.set, f.m, func(ctx context.Context, s client.Service) (*nstancev1.ListGroupsResponse, error) {
		return client.Groups(ctx, s, client.Parts{Vars: true})
	})
	if err == nil {
		f.set.listeners.send(f.m.listGroups(f.term, asked, answer))
	}
}

func (f *follower) listInstances(ctx context.Context) {
	_, _, asked := f.m.shard()
	all, err := callShard(ctx, f.set, f.m, func(ctx context.Context, s client.Service) ([]*nstancev1.InstanceStatus, error) {
		return client.Instances(ctx, s, "", true)
	})
	if err == nil {
		f.set.listeners.send(f.m.listInstances(f.term, asked, all))
	}
}
