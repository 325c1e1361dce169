package shards

import (
	"context"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/retry"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// listEvery is after how many polls all instances are asked for, too. No stream tells
// when a tombstone goes.
const listEvery = 20

// steadyAfter is how long the streams must have stood for their next end to count as
// the first one.
const steadyAfter = time.Minute

// patience is how long to wait before streams that a leader refused are begun again.
func patience() retry.Backoff {
	return retry.Backoff{First: time.Second, Limit: 30 * time.Second, Least: 200 * time.Millisecond}
}

// follower keeps up with one shard at the addresses that it has in one term.
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
			s.cfg.Client.Forget(f.shard.ID) // it may have been asked once more after it was forgotten
		}
	}
	return f
}

// current reports whether the shard still is where it is followed.
func (f *follower) current() bool {
	_, term, _ := f.m.shard()
	return term == f.term
}

// watch has the streams of this shard, also after those that ended.
func (f *follower) watch(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		f.set.listeners.send(f.m.begin(f.term))
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

// stream has the streams of this shard alone, until they end or, as cut tells, somebody
// wants others: a watch of several shards ends with the first one that is refused.
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

// poll asks now and then for what the streams should have told.
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
	answer, err := ask(ctx, f.set, f.m, func(ctx context.Context, s client.Service) (*nstancev1.ListGroupsResponse, error) {
		return s.ListGroups(ctx, &nstancev1.ListGroupsRequest{})
	})
	if err == nil {
		f.set.listeners.send(f.m.listGroups(f.term, asked, answer))
	}
}

func (f *follower) listInstances(ctx context.Context) {
	_, _, asked := f.m.shard()
	all, err := ask(ctx, f.set, f.m, func(ctx context.Context, s client.Service) ([]*nstancev1.InstanceStatus, error) {
		return client.Instances(ctx, s, "", true)
	})
	if err == nil {
		f.set.listeners.send(f.m.listInstances(f.term, asked, all))
	}
}
