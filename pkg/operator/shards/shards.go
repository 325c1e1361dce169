// Package shards holds the state of all shards, as reported by streams and verified by
// polling, and makes the mutating calls. An unreachable shard never blocks others.
package shards

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// State is the state of a shard itself.
type State struct {
	// Reachable: its leader answered the last call or stream.
	Reachable bool
	// Known: it has reported all groups and instances at least once since the operator
	// started. Before that, absence means nothing.
	Known bool
	// Synced: it is Known, and no change since has been missed: the streams work. Absence from
	// Group, Groups and Instances is proof then.
	Synced bool
	// Since is when Reachable last changed.
	Since time.Time
	// LastSync is when the last complete snapshot ended.
	LastSync time.Time
	// Err is why it is not Reachable.
	Err error

	ProviderKind, Region, Zone string
}

// grace is how long a shard may be unreachable before that is reported: leaders change now and
// then, and a starting operator has not reached any shard yet.
const grace = 3 * time.Second

// Silent reports whether a shard has been unreachable for longer than a change of its leader
// takes. If that may still come, left is when to ask again; zero: an event will follow.
func (s State) Silent(now time.Time) (silent bool, left time.Duration) {
	if s.Reachable || s.Err == nil {
		return false, 0
	}
	left = max(grace-now.Sub(s.Since), 0)
	return left == 0, left
}

// Kinds of events.
const (
	OfShard    = "shard"    // its State changed
	OfGroup    = "group"    // a group was added, changed, or removed
	OfInstance = "instance" // likewise for an instance, tombstones included
	OfProblem  = "problem"  // a problem began or ended
)

// Event announces a possible change. It names the object without its content, except for
// problems.
type Event struct {
	Of       string
	Shard    string
	Group    string // of a group, an instance, or a problem that concerns one
	Instance string // of an instance, or a problem that concerns one
	Problem  *nstancev1.WatchErrorsResponse
}

// Config configures a Set.
type Config struct {
	Client *client.Client
	Now    func() time.Time
	// Timeout bounds one call, with all its retries; 0: 10 s.
	Timeout time.Duration
	// Poll is how often all groups of a shard are listed besides the streams; 0: 30 s.
	Poll time.Duration
	// Random returns numbers in [0, 1) for jitter; nil: a default source.
	Random func() float64
}

// Set is all shards of the operator's configuration. It is safe for concurrent use. Returned
// messages are shared and must not be changed.
type Set struct {
	cfg       Config
	changed   chan struct{} // tells Run that the shards changed
	listeners listeners

	mu      sync.RWMutex
	running bool // Run was called
	shards  map[string]*memory
	left    map[string]*memory // shards no longer configured, for keepLeft
}

// keepLeft is how long the state of a shard that left the configuration stays readable.
// Otherwise a caller that reads State, then Instances, would see Synced and no instances, and
// take all for gone. It is far longer than any such sequence.
const keepLeft = time.Minute

// New returns a set without shards.
func New(cfg Config) *Set {
	cfg.Timeout, cfg.Poll = cmp.Or(cfg.Timeout, 10*time.Second), cmp.Or(cfg.Poll, 30*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	return &Set{cfg: cfg, changed: make(chan struct{}, 1), shards: map[string]*memory{}, left: map[string]*memory{}}
}

// Run follows the shards until ctx ends, and then returns nil. It can be called once.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	again := s.running
	s.running = true
	s.mu.Unlock()
	if again {
		return errors.New("follow the shards: Run was called twice")
	}
	var all sync.WaitGroup
	defer all.Wait()
	following := map[*memory]*follower{}
	for {
		s.adjust(ctx, following, &all)
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// adjust stops the followers of shards that left or moved, and starts those that are missing.
func (s *Set) adjust(ctx context.Context, following map[*memory]*follower, all *sync.WaitGroup) {
	s.mu.RLock()
	shards := slices.Collect(maps.Values(s.shards))
	s.mu.RUnlock()
	for m, f := range following {
		if !slices.Contains(shards, m) || !f.current() {
			f.stop()
			delete(following, m)
		}
	}
	for _, m := range shards {
		if following[m] == nil {
			f := follow(ctx, s, m)
			following[m] = f
			all.Go(f.run)
		}
	}
}

// Configure sets the shards. Shards not named any more are removed: State no longer knows
// them, and the rest of their state stays readable for a minute. Shards with other addresses
// are reconnected and keep their state; others are undisturbed. It may be called before Run.
func (s *Set) Configure(shards []client.Shard) {
	events, left := s.configure(shards)
	for name, m := range left {
		s.cfg.Client.Forget(name)
		time.AfterFunc(keepLeft, func() { s.listeners.send(s.drop(name, m)) })
	}
	select {
	case s.changed <- struct{}{}:
	default: // already signalled
	}
	s.listeners.send(events)
}

func (s *Set) configure(shards []client.Shard) (events []Event, left map[string]*memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left = map[string]*memory{}
	for name, m := range s.shards {
		if !slices.ContainsFunc(shards, func(one client.Shard) bool { return one.ID == name }) {
			delete(s.shards, name)
			left[name], s.left[name] = m, m
			events = append(events, m.forget()...)
		}
	}
	for _, one := range shards {
		m := s.shards[one.ID]
		if m == nil {
			s.shards[one.ID] = newMemory(one, s.cfg.Now)
			delete(s.left, one.ID) // it may be a different shard of that name
			events = append(events, Event{Of: OfShard, Shard: one.ID})
			continue
		}
		events = append(events, m.move(one.Addrs)...)
	}
	return events, left
}

// drop removes the state of a shard that left, unless a shard of that name was configured
// since.
func (s *Set) drop(name string, m *memory) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[name] != m {
		return nil
	}
	delete(s.left, name)
	return m.all()
}

// Names returns the names of the configured shards, sorted.
func (s *Set) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.shards))
}

func (s *Set) memory(shard string) *memory {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.shards[shard]
}

// lasting returns the memory of a shard that is or recently was configured.
func (s *Set) lasting(shard string) *memory {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if m := s.shards[shard]; m != nil {
		return m
	}
	return s.left[shard]
}

// State returns a shard's state; false if it is not configured. If absence is to be proof,
// State must be read first, and be Synced.
func (s *Set) State(shard string) (State, bool) {
	m := s.memory(shard)
	if m == nil {
		return State{}, false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state, true
}

// Group returns a group as its shard last reported it; nil if there is none as far as is
// known, which is certain only while the shard is Synced.
func (s *Set) Group(shard, group string) *nstancev1.GroupStatus {
	m := s.lasting(shard)
	if m == nil {
		return nil
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.groups.get(group)
}

// Groups returns all groups of a shard, sorted by key.
func (s *Set) Groups(shard string) []*nstancev1.GroupStatus {
	m := s.lasting(shard)
	if m == nil {
		return nil
	}
	m.mu.RLock()
	all := m.groups.all(func(*nstancev1.GroupStatus) bool { return true })
	m.mu.RUnlock()
	slices.SortFunc(all, func(a, b *nstancev1.GroupStatus) int { return strings.Compare(a.GetKey(), b.GetKey()) })
	return all
}

// Instance returns an instance as its shard last reported it, including tombstones; nil if
// there is none, with the same certainty as Group.
func (s *Set) Instance(shard, id string) *nstancev1.InstanceStatus {
	m := s.lasting(shard)
	if m == nil {
		return nil
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.instances.get(id)
}

// Instances returns a group's instances, or all if group is empty, sorted by ID.
func (s *Set) Instances(shard, group string) []*nstancev1.InstanceStatus {
	m := s.lasting(shard)
	if m == nil {
		return nil
	}
	m.mu.RLock()
	all := m.instances.all(func(i *nstancev1.InstanceStatus) bool { return group == "" || i.GetGroup() == group })
	m.mu.RUnlock()
	slices.SortFunc(all, func(a, b *nstancev1.InstanceStatus) int { return strings.Compare(a.GetId(), b.GetId()) })
	return all
}

// Condition returns the condition of that type if it is true of a group; nil: it is not.
func Condition(g *nstancev1.GroupStatus, kind string) *nstancev1.Condition {
	for _, c := range g.GetConditions() {
		if c.GetType() == kind && c.GetStatus() == "True" {
			return c
		}
	}
	return nil
}
