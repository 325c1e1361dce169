package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	// idleSettle is the time for the start, the agents, and the first sweep after a lease.
	idleSettle = 45 * time.Second
	// idlePeriod is the interval of sweeps; a window has a whole number of them.
	idlePeriod = 2 * time.Minute
	idleLeast  = 2 * idlePeriod
)

type idleSettings struct {
	Dir string `json:"dir"`
}

// asked are the times of a server's requests to the store.
type asked struct {
	object.Store
	mu    sync.Mutex
	times map[object.Verb][]time.Time
}

func (a *asked) note(v object.Verb) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times[v] = append(a.times[v], time.Now())
}

// Get implements object.Store.
func (a *asked) Get(ctx context.Context, key string) (object.Object, error) {
	a.note(object.VerbGet)
	return a.Store.Get(ctx, key)
}

// Put implements object.Store.
func (a *asked) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	a.note(object.VerbPut)
	return a.Store.Put(ctx, key, body, pre)
}

// Delete implements object.Store.
func (a *asked) Delete(ctx context.Context, key string) error {
	a.note(object.VerbDelete)
	return a.Store.Delete(ctx, key)
}

// List implements object.Store.
func (a *asked) List(ctx context.Context, prefix, token string) (object.Page, error) {
	a.note(object.VerbList)
	return a.Store.List(ctx, prefix, token)
}

func (a *asked) within(from time.Time, window time.Duration) objecttest.Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	count := func(v object.Verb) (n int64) {
		for _, at := range a.times[v] {
			if at.After(from) && at.Before(from.Add(window)) {
				n++
			}
		}
		return n
	}
	return objecttest.Counts{
		Get: count(object.VerbGet), Put: count(object.VerbPut), Delete: count(object.VerbDelete), List: count(object.VerbList),
	}
}

// playIdle runs a leader with agents, and a standby, at the default intervals.
func playIdle(ctx context.Context, s *stage) error {
	var settings idleSettings
	if err := s.read(&settings); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store := mem.New(mem.Config{Latency: storeLatency})
	people := newPopulation(ctx, logger)
	defer people.close()
	machines := newMachines(fake.New(fake.Config{}))
	machines.created = people.born
	addrs, err := prepare(ctx, store, shard{Size: idleAgents})
	if err != nil {
		return err
	}
	began := time.Now()
	leader, standby := &asked{Store: store, times: map[object.Verb][]time.Time{}}, &asked{Store: store, times: map[object.Verb][]time.Time{}}
	stopLeader := node{
		ID: "leader", Store: leader, Provider: machines, CacheDir: filepath.Join(settings.Dir, "a"), Addrs: addrs, Logger: logger,
	}.start(ctx)
	if err := until(ctx, "the agents report", idleSettle, func() bool { return people.reporting() >= idleAgents }); err != nil {
		return err
	}
	if addrs, err = freeEndpoints(ctx); err != nil {
		return err
	}
	stopStandby := node{
		ID: "standby", Store: standby, Provider: machines, CacheDir: filepath.Join(settings.Dir, "b"), Addrs: addrs, Logger: logger,
	}.start(ctx)
	<-s.commands
	from := began.Add(idleSettle)
	if err := retry.Wait(ctx, max(0, time.Until(from.Add(idleLeast)))); err != nil {
		return err
	}
	window := time.Since(from).Truncate(idlePeriod)
	text, err := json.Marshal(idleReport{Window: window, Leader: leader.within(from, window), Standby: standby.within(from, window)})
	if err != nil {
		return err
	}
	s.tell(event{Kind: "report", Text: string(text)})
	if err := stopStandby(); err != nil {
		return err
	}
	return stopLeader()
}
