// Package fake is a provider whose machines are rows in memory, for tests,
// simulations and benchmarks. It behaves like a cloud rather than answering
// from a script: calls take time, boots and deletions take longer, requests
// fail before or after they took effect, capacity runs out, machines die.
//
// Several Provider handles share one World, as the servers of a shard share one
// cloud. All time is the standard library's, so a World made inside a
// testing/synctest bubble lives on the bubble's clock.
//
// What is left to chance is drawn from Config.Seed together with the kind of
// call, the instance and how often it was asked, never from the order in which
// goroutines happen to run: a simulation that is deterministic otherwise stays
// so.
package fake

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Span is a range of durations to draw from, both ends included. The zero Span
// is no time at all.
type Span struct{ Min, Max time.Duration }

// Fixed returns the span that is always d.
func Fixed(d time.Duration) Span { return Span{Min: d, Max: d} }

// Config describes a world. The zero Config is one where everything succeeds at
// once.
type Config struct {
	Seed uint64

	// How long each call takes. A Create or Delete takes effect at the end of
	// that time, just before its reply.
	CreateLatency, GetLatency, ListLatency, DeleteLatency Span
	// ListPage is how many VMs one call of a List shows, each of which takes its
	// time; 0: all.
	ListPage int
	// AsideLatency is that of the calls which only some providers offer: subnets,
	// images, instance types, load balancers.
	AsideLatency Span

	// Lag makes reads eventual: Get and List show each machine as it was so long
	// ago, drawn anew for every one that they show, so that an answer may be older
	// than the one before it. Zero: reads are consistent. Calls that change
	// something, events, and the World's own methods know the present.
	Lag Span

	Boot     Span          // pending to running
	Shutdown Span          // stopping to stopped, and deleting to gone
	Remember time.Duration // how long a VM that is gone is still reported as deleted
	Lifetime Span          // from running to a spontaneous death; zero: for ever

	// LandsAfterCancel is the probability that a mutation whose caller gave up
	// takes effect all the same, at the time it would have.
	LandsAfterCancel float64

	// Capacity is how many VMs each subnet holds; nil: any subnet, unlimited. A
	// subnet that is not named does not exist.
	Capacity map[string]int

	// InstanceTypes are those that there are. A VM may be of any other all the same.
	InstanceTypes map[string]provider.InstanceType
	Images        []Image // see World.AddImage for more
	// Targets are the load balancers' targets that exist; nil: any. See
	// World.AddTarget for more.
	Targets []string

	// CheckArgs says what is wrong with a spec, as provider.FieldErrors; nil: any goes,
	// and there is no provider.ArgsChecker.
	CheckArgs func(provider.Spec) error

	Chances   []Chance   // random faults; the first that strikes wins
	Throttles []Throttle // see World.Throttle for others

	// OnCall, when set, is told of every call as it starts, after the guard
	// permitted it. It must not call back into the World.
	OnCall func(Call)
}

// World is a whole cloud. It is safe for concurrent use.
type World struct {
	cfg Config
	*faults
	*throttles
	*callLog

	mu       sync.Mutex
	shelves  map[provider.Scope]*shelf
	byName   map[string]*row // by provider id
	used     map[string]int  // VMs per subnet
	serial   uint64
	dice     dice
	watchers map[*watcher]struct{}
	changes  atomic.Uint64 // of the states of machines

	capacity   map[string]int // nil: any subnet, unlimited
	images     []Image
	targets    map[string]map[string]bool // provider ids by target
	anyTargets bool                       // one that is not there is made when it is named
}

// New makes an empty world.
func New(cfg Config) *World {
	w := &World{
		cfg:       cfg,
		faults:    &faults{chances: cfg.Chances, scripted: map[Op][]Fault{}},
		throttles: &throttles{},
		callLog:   &callLog{},

		shelves:  map[provider.Scope]*shelf{},
		byName:   map[string]*row{},
		used:     map[string]int{},
		dice:     dice{seed: cfg.Seed, counts: map[drawKey]uint64{}},
		watchers: map[*watcher]struct{}{},
		capacity: maps.Clone(cfg.Capacity),
		images:   slices.Clone(cfg.Images),
		targets:  map[string]map[string]bool{},

		anyTargets: cfg.Targets == nil,
	}
	w.Throttle(cfg.Throttles...)
	for _, target := range cfg.Targets {
		w.targets[target] = map[string]bool{}
	}
	return w
}

// Open returns a handle on the VMs of one scope. name tells the handles apart in
// the log of calls: it is the server that holds this one.
func (w *World) Open(scope provider.Scope, name string) *Provider {
	return &Provider{w: w, scope: scope, name: name}
}

// address gives the n-th VM its address, out of 10.0.0.0/8.
func address(n uint64) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}
