package shardstest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Timing has the durations of processes. All may be 0, except Tombstone.
type Timing struct {
	Create    time.Duration // from the record to the machine
	Boot      time.Duration // from the machine to running
	Drain     time.Duration // a drain's limit; 0: no drains
	Delete    time.Duration // from deleting to deleted
	Tombstone time.Duration // how long a tombstone is reported
}

// DefaultInstanceType is the type of groups that set none. It and "large" have a known
// capacity.
const DefaultInstanceType = "small"

// state is a shard's state and its simulation. Methods are called with its lock held unless
// noted.
type state struct {
	tb      testing.TB
	id      string  // of the shard
	changed *signal // notifies the streams

	mu        sync.Mutex
	timing    Timing
	noRoom    bool
	refuses   string                                // why the provider refuses on-demand instances; empty: it does not
	unmanaged bool                                  // it knows no managers of groups
	races     int                                   // how many more changes of groups to race
	capacity  map[string]*nstancev1.MachineCapacity // by instance type
	vars      map[string]*structpb.Struct           // by template
	groups    map[string]*group
	instances map[string]*instance
	requests  map[string]*request // by idempotency key
	problems  []*nstancev1.WatchErrorsResponse
	said      []*nstancev1.WatchErrorsResponse // all events of problems so far
	version   uint64                           // of the last change
	left      map[string]uint64                // removed groups, with the version of the removal
	lastID    time.Time
	timer     *time.Timer // for the next scheduled step
	ended     bool        // the simulation has ended
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
		vars: map[string]*structpb.Struct{}, groups: map[string]*group{},
		instances: map[string]*instance{}, requests: map[string]*request{}, left: map[string]uint64{},
	}
}

// change runs do under the lock, and converges.
func (s *state) change(do func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(time.Now())
	s.converge()
}

// act does so for an instance, which must exist.
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

// touch marks an instance, and so its group, as changed.
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

// signal is a broadcast that something has changed.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

// next returns a channel that is closed by the next send.
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
