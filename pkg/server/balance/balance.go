// Package balance registers the instances of groups with the targets of their load
// balancers, for one term of leadership. It reads the current registrations from
// the provider and keeps no state beyond the term.
//
// A Balancer has its own lock. While holding it, it calls no other package except
// to start a worker.
package balance

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	// maxCalls limits concurrent calls to load balancers.
	maxCalls = 8
	// deregisterFor is how long a deletion waits for an instance's deregistration,
	// counted from when that became due.
	deregisterFor = time.Minute
	// giveUpAfter is how long the deregistration of an instance without a record is
	// retried.
	giveUpAfter = time.Hour
	// rereadTargets is the interval at which a target's registrations are read.
	rereadTargets = time.Hour
)

func callBackoff() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Limit: time.Minute}
}
func targetBackoff() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Limit: 5 * time.Minute}
}

// Config is what a Balancer needs. Its functions are safe for concurrent use.
type Config struct {
	Port    provider.LoadBalancer      // nil: the provider has none
	Targets func() map[string][]string // the provider's targets of every load balancer, by its name; optional
	Records func() []fleet.Instance    // of the whole shard
	Groups  func() []fleet.Group       // all defined groups
	Timeout func() time.Duration       // of each call
	Go      func(func())               // runs a worker, which is waited for at the end of the term
	Again   func(key fleet.GroupKey)   // requests another Update of the group
	Report  func(ctx context.Context, err error, key fleet.GroupKey, id fleet.InstanceID)
	Solved  func(key fleet.GroupKey) // called when all reported problems of the group are resolved; optional
	Logger  *slog.Logger
}

// Balancer registers and deregisters instances. It is safe for concurrent use.
type Balancer struct {
	cfg   Config
	calls chan struct{} // semaphore of maxCalls
	wake  chan struct{} // capacity 1: signals a target to read

	mu       sync.Mutex
	targets  map[string]*target
	statuses map[fleet.GroupKey]map[registration]*status
	waiting  map[fleet.InstanceID]chan struct{} // closed when the instance has no registration left
	troubled map[fleet.GroupKey]bool            // groups with a reported problem
}

// status is the actual and desired state of a registration.
type status struct {
	key     fleet.GroupKey
	ref     provider.Ref
	actual  state
	desired state

	busy       bool      // a call is in progress
	answeredAt time.Time // when the last call ended
	failures   int       // consecutive failed calls
	quietUntil time.Time // no call before, after a failure
	reported   string    // the last failure
	leavingAt  time.Time // when deregistration became due
}

// target is one target of a load balancer.
type target struct {
	read     bool      // its registrations are known
	due      time.Time // of the next read
	failures int       // consecutive failed reads
}

// New returns a balancer for one term.
func New(cfg Config) *Balancer {
	return &Balancer{
		cfg: cfg, calls: make(chan struct{}, maxCalls), wake: make(chan struct{}, 1),
		targets: map[string]*target{}, statuses: map[fleet.GroupKey]map[registration]*status{},
		waiting: map[fleet.InstanceID]chan struct{}{}, troubled: map[fleet.GroupKey]bool{},
	}
}

func (b *Balancer) targetsOf(g fleet.Group) map[string]string {
	if b.cfg.Targets == nil {
		return nil
	}
	return targetsOf(g, b.cfg.Targets())
}

// Idle reports whether Update has nothing to do for a group, the common case.
func (b *Balancer) Idle(g fleet.Group) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(g.LoadBalancers) == 0 && len(b.statuses[g.Key]) == 0 && !b.troubled[g.Key]
}

// Update starts the due calls for a group's instances. It returns when to call it
// again even if nothing changes; zero: never. If the group is undefined, disabled or
// removed, its load balancers are not known: registrations stay until their instances leave.
func (b *Balancer) Update(ctx context.Context, g fleet.Group, defined bool, members []Member, now time.Time) (again time.Time) {
	targets := b.targetsOf(g)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(g.LoadBalancers) == 0 && len(b.statuses[g.Key]) == 0:
		b.solved(g.Key)
	case b.cfg.Port != nil:
		b.expect(targets)
		again = b.advanceAll(ctx, g.Key, members, targets, !defined || g.Removed || g.Disabled != "", now)
		if b.converged(g.Key, targets) {
			b.solved(g.Key)
		}
	case !b.troubled[g.Key]:
		b.trouble(ctx, fmt.Errorf("register with load_balancers %v: %w", g.LoadBalancers, provider.ErrUnsupported), g.Key, "")
	}
	return again
}

// advanceAll takes the next step of each registration of a group. A frozen group gets no
// new registrations.
func (b *Balancer) advanceAll(
	ctx context.Context, key fleet.GroupKey, members []Member, targets map[string]string, frozen bool, now time.Time,
) (again time.Time) {
	desired := b.desire(members, targets, frozen)
	for _, r := range slices.SortedFunc(maps.Keys(b.statuses[key]), compare) {
		want, there := desired[r.id]
		s := b.statuses[key][r]
		if !there && s.givenUp(now) {
			b.drop(key, r)
			continue
		}
		if _, used := targets[r.target]; !there || !used && !frozen {
			want = deregistered
		}
		if at := b.advance(ctx, r, s, want, now); again.IsZero() || !at.IsZero() && at.Before(again) {
			again = at
		}
	}
	return again
}

// trouble reports a problem of a group.
func (b *Balancer) trouble(ctx context.Context, err error, key fleet.GroupKey, id fleet.InstanceID) {
	b.troubled[key] = true
	b.cfg.Go(func() { b.cfg.Report(ctx, err, key, id) })
}

// solved marks the problems of a group as resolved.
func (b *Balancer) solved(key fleet.GroupKey) {
	if b.troubled[key] {
		delete(b.troubled, key)
		if b.cfg.Solved != nil {
			b.cfg.Go(func() { b.cfg.Solved(key) })
		}
	}
}

// converged reports whether all registrations of a group are as desired.
func (b *Balancer) converged(key fleet.GroupKey, targets map[string]string) bool {
	for name := range targets {
		if !b.targets[name].read {
			return false
		}
	}
	for r, s := range b.statuses[key] {
		if t := b.targets[r.target]; s.busy || due(s.actual, s.desired, t != nil && t.read) != none {
			return false
		}
	}
	return true
}

// desire returns the desired state of each instance, and starts tracking the registrations
// to be made.
func (b *Balancer) desire(members []Member, targets map[string]string, frozen bool) map[fleet.InstanceID]state {
	all := make(map[fleet.InstanceID]state, len(members))
	for _, m := range members {
		desired := desiredOf(m)
		if frozen && desired == registered {
			desired = unset
		}
		all[m.ID] = desired
		for target := range targets {
			if desired == registered {
				b.track(registration{m.ID, target}, m.Instance)
			}
		}
	}
	return all
}

// track starts tracking a registration. Idempotent.
func (b *Balancer) track(r registration, i fleet.Instance) {
	key := i.GroupKey()
	if b.statuses[key] == nil {
		b.statuses[key] = map[registration]*status{}
	}
	if b.statuses[key][r] != nil {
		return
	}
	s := &status{key: key, ref: provider.RefOf(i)}
	if t := b.targets[r.target]; t != nil && t.read {
		s.actual = deregistered
	}
	b.statuses[key][r] = s
}

// advance takes the next step towards the desired state. If the step has to wait, it returns
// when it is due.
func (b *Balancer) advance(ctx context.Context, r registration, s *status, desired state, now time.Time) (again time.Time) {
	if desired == deregistered && s.desired != deregistered {
		s.leavingAt = now
	}
	if desired != s.desired {
		s.failures, s.quietUntil = 0, time.Time{}
	}
	s.desired = desired
	t := b.targets[r.target]
	next := due(s.actual, desired, t != nil && t.read)
	switch {
	case s.busy:
	case next == none && desired == deregistered:
		b.drop(s.key, r)
	case next == none:
	case s.quietUntil.After(now):
		return s.quietUntil
	default:
		s.busy = true
		b.cfg.Go(func() { b.perform(ctx, r, s, next) })
	}
	return again
}

// givenUp reports whether deregistration of an instance without a record has been retried
// for giveUpAfter.
func (s *status) givenUp(now time.Time) bool {
	return !s.busy && s.desired == deregistered && now.Sub(s.leavingAt) >= giveUpAfter
}

// drop forgets a registration. If it was the instance's last one, waiters of leaving are
// released.
func (b *Balancer) drop(key fleet.GroupKey, r registration) {
	delete(b.statuses[key], r)
	if len(b.statuses[key]) == 0 {
		delete(b.statuses, key)
	}
	if done := b.waiting[r.id]; done != nil && !b.has(key, r.id) {
		close(done)
		delete(b.waiting, r.id)
	}
}

func (b *Balancer) has(key fleet.GroupKey, id fleet.InstanceID) bool {
	for r := range b.statuses[key] {
		if r.id == id {
			return true
		}
	}
	return false
}

// Entries returns the number of entries in memory.
func (b *Balancer) Entries() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.waiting) + len(b.troubled)
	for _, statuses := range b.statuses {
		n += 1 + len(statuses)
	}
	return n
}
