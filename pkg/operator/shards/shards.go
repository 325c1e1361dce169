// Package shards keeps what every shard says, as streams tell it and a poll makes
// sure of it, and makes the calls that change something. A shard that can't be
// reached never holds up another.
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

// State is what is known of a shard itself.
type State struct {
	// Reachable: its leader answers, as far as the last call or stream says.
	Reachable bool
	// Known: it has told all its groups and all its instances, at least once since
	// the operator began. Before that nothing that is missing means anything.
	Known bool
	// Synced: it is Known, and no change since has been missed: the streams stand.
	// What Group, Groups and Instances say then is positive evidence.
	Synced bool
	// Since is when Reachable last changed.
	Since time.Time
	// LastSync is when the shard last told all of it.
	LastSync time.Time
	// Err is why it is not Reachable.
	Err error

	ProviderKind, Region, Zone string
}

// grace is how long a shard may be silent before that is told: its leader changes now
// and then, and an operator that begins has heard of no shard yet.
const grace = 3 * time.Second

// Silent reports whether a shard has not answered for longer than a change of its leader
// takes. While it may be, left is after how long that is to be asked again; zero: its
// next event will tell.
func (s State) Silent(now time.Time) (silent bool, left time.Duration) {
	if s.Reachable || s.Err == nil {
		return false, 0
	}
	left = max(grace-now.Sub(s.Since), 0)
	return left == 0, left
}

// What an event is about.
const (
	OfShard    = "shard"    // its State changed
	OfGroup    = "group"    // a group is new, is different, or is gone
	OfInstance = "instance" // the same of an instance; also when its tombstone came
	OfProblem  = "problem"  // a shard tells of an error, or of its end
)

// Event tells that something may be different. It says where to look and not what
// there is; only a problem comes whole.
type Event struct {
	Of       string
	Shard    string
	Group    string // of a group or an instance; of a problem if it concerns one
	Instance string // of an instance; of a problem if it concerns one
	Problem  *nstancev1.WatchErrorsResponse
}

// Config is what a Set needs.
type Config struct {
	Client *client.Client
	Now    func() time.Time
	// Timeout bounds one call, with all of its repetitions; 0: 10 s.
	Timeout time.Duration
	// Poll is how often all groups of a shard are asked for beside the streams; 0: 30 s.
	Poll time.Duration
	// Random yields numbers from [0, 1), for the waits between attempts; nil: any.
	Random func() float64
}

// Set is all shards of the operator's configuration. It is safe for concurrent use.
// What it returns is shared: callers must not change it.
type Set struct {
	cfg       Config
	changed   chan struct{} // Run is to look which shards there are
	listeners listeners

	mu      sync.RWMutex
	running bool // now or before
	shards  map[string]*memory
	left    map[string]*memory // those that are not configured any more, for keepLeft
}

// keepLeft is how long what a shard told can be seen after it left the configuration.
// Who asks for its State, and a moment later for what it has, would otherwise hear that
// it is Synced and that it has nothing, and take all of that for gone. It is much longer
// than any such moment, and otherwise of no consequence.
const keepLeft = time.Minute

// New makes a set without shards.
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

// Run follows the shards until ctx ends, which is no error. It can be called once.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	again := s.running
	s.running = true
	s.mu.Unlock()
	if again {
		return errors.New("follow the shards: they are followed already, or were")
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

// adjust ends what follows shards that are gone or were given other addresses, and
// follows those that nobody follows yet.
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

// Configure says which shards there are from now on. Those that are not named any
// more are forgotten: State does not know them from that moment on, and what they told
// is seen a minute longer. Those that have other addresses are connected to anew, and
// what they told stays known; the others go on undisturbed. It may be called before Run.
func (s *Set) Configure(shards []client.Shard) {
	events, left := s.configure(shards)
	for name, m := range left {
		s.cfg.Client.Forget(name)
		time.AfterFunc(keepLeft, func() { s.listeners.send(s.drop(name, m)) })
	}
	select {
	case s.changed <- struct{}{}:
	default: // Run has not looked since the last time
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
			delete(s.left, one.ID) // it may be another one of that name
			events = append(events, Event{Of: OfShard, Shard: one.ID})
			continue
		}
		events = append(events, m.move(one.Addrs)...)
	}
	return events, left
}

// drop takes away what a shard told that has left, unless there is another one of its
// name, or was since.
func (s *Set) drop(name string, m *memory) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[name] != m {
		return nil
	}
	delete(s.left, name)
	return m.all()
}

// Names are those of the configured shards, sorted.
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

// lasting is the memory of a shard that is configured, or was a moment ago.
func (s *Set) lasting(shard string) *memory {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if m := s.shards[shard]; m != nil {
		return m
	}
	return s.left[shard]
}

// State returns what is known of a shard; false: it is not configured. Where a Synced
// one makes evidence of what is missing, it is to be asked for before that.
func (s *Set) State(shard string) (State, bool) {
	m := s.memory(shard)
	if m == nil {
		return State{}, false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state, true
}

// Group returns a group as its shard last told it; nil: as far as is known there is
// none, which is certain only while the shard is Synced.
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

// Instance returns an instance as its shard last told it, also one that is deleted as
// long as the shard tells of it; nil: there is none, as of Group.
func (s *Set) Instance(shard, id string) *nstancev1.InstanceStatus {
	m := s.lasting(shard)
	if m == nil {
		return nil
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.instances.get(id)
}

// Instances returns those of a group, or all when group is empty, sorted by id.
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
