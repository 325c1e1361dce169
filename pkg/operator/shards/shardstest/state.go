package shardstest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Timing is how long things take. All of it may be 0, but Tombstone.
type Timing struct {
	Create    time.Duration // from a record to its machine
	Boot      time.Duration // from a machine to an instance that runs
	Drain     time.Duration // a drain at most; 0: nothing is drained
	Delete    time.Duration // from deleting to deleted
	Tombstone time.Duration // how long a deleted instance is told of
}

// DefaultInstanceType is that of groups that name none. It and "large" have a
// capacity that is known.
const DefaultInstanceType = "small"

// state is what a shard keeps, and what happens to it by itself. Methods that
// do not say otherwise are called with its lock held.
type state struct {
	tb      testing.TB
	id      string  // of the shard
	changed *signal // that there is something new for the streams

	mu        sync.Mutex
	timing    Timing
	noRoom    bool
	capacity  map[string]*nstancev1.MachineCapacity // by instance type
	groups    map[string]*group
	instances map[string]*instance
	requests  map[string]*request // by idempotency key
	problems  []*nstancev1.WatchErrorsResponse
	said      []*nstancev1.WatchErrorsResponse // all that was ever told of problems
	version   uint64                           // of the last change
	left      map[string]uint64                // groups that are gone, and at which version
	lastID    time.Time
	timer     *time.Timer // for what comes by itself
	ended     bool        // nothing does any more
}

func newState(tb testing.TB, id string) *state {
	tb.Helper()
	return &state{
		tb: tb, id: id, changed: newSignal(),
		timing: Timing{Drain: 5 * time.Minute, Tombstone: 30 * time.Minute},
		capacity: map[string]*nstancev1.MachineCapacity{
			DefaultInstanceType: {CpuMillis: 2000, MemoryBytes: 4 << 30, Arch: "amd64"},
			"large":             {CpuMillis: 8000, MemoryBytes: 32 << 30, Arch: "arm64"},
		},
		groups: map[string]*group{}, instances: map[string]*instance{}, requests: map[string]*request{}, left: map[string]uint64{},
	}
}

// change takes the lock, does something and then what comes of it.
func (s *state) change(do func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(time.Now())
	s.settle()
}

// act does the same to an instance that is there.
func (s *state) act(id string, do func(i *instance, now time.Time)) {
	s.tb.Helper()
	s.change(func(now time.Time) {
		i := s.instances[id]
		if i == nil {
			s.tb.Errorf("shard %s has no instance %s", s.id, id)
			return
		}
		do(i, now)
	})
}

func (s *state) byAge() []*instance {
	all := make([]*instance, 0, len(s.instances))
	for _, i := range s.instances {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b *instance) int { return strings.Compare(a.Id, b.Id) })
	return all
}

// touch notes that an instance, and so its group, may be different.
func (s *state) touch(i *instance) {
	s.version++
	i.version = s.version
	if g := s.groups[i.Group]; g != nil {
		s.touchGroup(g)
	}
}

func (s *state) touchGroup(g *group) {
	s.version++
	g.version = s.version
}

// signal tells many that something has changed.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

// next is closed with the next send.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

func (s *signal) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}
