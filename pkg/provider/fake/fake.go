// Package fake is an in-memory provider for tests, simulations and benchmarks. It behaves like
// a cloud rather than from a script: calls take time, boots and deletions take longer, requests
// fail before or after they took effect, capacity runs out, machines die.
//
// Several Provider handles share one World, as the servers of a shard share a cloud. All time
// comes from the standard library, so a World created within a testing/synctest bubble uses the
// bubble's clock.
//
// Randomness is derived from Config.Seed with the kind of call, the instance and the number of
// calls so far, never from goroutine scheduling: an otherwise deterministic simulation stays
// deterministic.
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

// Span is an inclusive range of durations to draw from. The zero Span is zero.
type Span struct{ Min, Max time.Duration }

// Fixed returns a span of exactly d.
func Fixed(d time.Duration) Span { return Span{Min: d, Max: d} }

// Config configures a World. With the zero Config everything succeeds at once.
type Config struct {
	Seed uint64

	// Latency of each call. A Create or Delete takes effect at its end, just before the reply.
	CreateLatency, GetLatency, ListLatency, DeleteLatency Span
	// ListPage is the number of VMs per page of a List, each of which has the latency; 0: all.
	ListPage int
	// AsideLatency is the latency of the optional calls: subnets, images, instance types, load
	// balancers.
	AsideLatency Span

	// Lag makes reads stale: Get and List show each machine as it was that long ago, drawn for
	// each machine and read, so an answer may be older than the previous one. Zero: reads are
	// consistent. Mutations, events and the World's own methods use the current state.
	Lag Span

	Boot     Span          // pending to running
	Shutdown Span          // stopping to stopped, and deleting to gone
	Remember time.Duration // how long a gone VM is reported as deleted
	Lifetime Span          // from running to a spontaneous death; zero: unlimited

	// LandsAfterCancel is the probability that a mutation whose caller gave up takes effect
	// nonetheless.
	LandsAfterCancel float64

	// Capacity is the number of VMs per subnet; nil: any subnet, unlimited. Other subnets don't
	// exist.
	Capacity map[string]int

	// InstanceTypes are the known instance types. VMs may have other types.
	InstanceTypes map[string]provider.InstanceType
	Images        []Image // see World.AddImage for more
	// Targets are the existing load balancer targets; nil: any. See World.AddTarget for more.
	Targets []string

	// CheckArgs validates a spec and returns provider.FieldErrors; nil: none, and there is no
	// provider.ArgsChecker.
	CheckArgs func(provider.Spec) error

	Chances   []Chance   // random faults; the first that occurs wins
	Throttles []Throttle // see World.Throttle

	// OnCall, if set, is called as each call starts, after the guard permitted it. It must not
	// call back into the World.
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
	byName   map[string]*row // by provider ID
	used     map[string]int  // VMs per subnet
	serial   uint64
	dice     dice
	watchers map[*watcher]struct{}
	changes  atomic.Uint64 // counts state changes

	capacity   map[string]int // nil: any subnet, unlimited
	images     []Image
	targets    map[string]map[string]bool // provider IDs by target
	anyTargets bool                       // missing targets are created on use
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

// Open returns a handle on the VMs of one scope. name identifies the handle, usually a server,
// in the log of calls.
func (w *World) Open(scope provider.Scope, name string) *Provider {
	return &Provider{w: w, scope: scope, name: name}
}

// address returns the n-th VM's address in 10.0.0.0/8.
func address(n uint64) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}
