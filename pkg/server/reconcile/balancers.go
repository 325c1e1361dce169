package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/plan"
)

// ReasonLoadBalancer is the reason of problems with registering instances with
// load balancers.
const ReasonLoadBalancer = "LoadBalancerError"

const (
	// maxBalances bounds the calls to load balancers under way at one time.
	maxBalances = 8
	// leaveFor is for how long at most a deletion waits for an instance to be
	// deregistered, counted from when it was first to be.
	leaveFor = time.Minute
	// giveUpAfter is for how long at least it is tried to deregister an instance
	// of which no record is left.
	giveUpAfter = time.Hour
	// rereadTargets is how often it is looked up who is registered.
	rereadTargets = time.Hour
)

func balanceBackoff() retry.Backoff { return retry.Backoff{First: 500 * time.Millisecond, Limit: time.Minute} }
func targetBackoff() retry.Backoff  { return retry.Backoff{First: 500 * time.Millisecond, Limit: 5 * time.Minute} }

// balancers is who is registered with the targets of load balancers, as far as
// this term has learned. Loop.mu guards it, but for port, calls and wake.
type balancers struct {
	port  provider.LoadBalancer // nil: the provider has none
	calls *slots
	wake  chan struct{} // holds at most one: there is a target to read

	targets  map[string]*target
	seats    map[fleet.GroupKey]map[seat]*sitter
	left     map[fleet.InstanceID]chan struct{} // closed when the instance is registered nowhere any more
	troubled map[fleet.GroupKey]bool            // groups that a problem was reported to
}

// target is one target of a load balancer.
type target struct {
	read     bool // it is known who is registered
	due      time.Time
	failures int
}

func newBalancers(p provider.Provider) *balancers {
	b := &balancers{
		calls: newSlots(maxBalances), wake: make(chan struct{}, 1),
		targets: map[string]*target{}, seats: map[fleet.GroupKey]map[seat]*sitter{},
		left: map[fleet.InstanceID]chan struct{}{}, troubled: map[fleet.GroupKey]bool{},
	}
	b.port, _ = p.(provider.LoadBalancer)
	return b
}

// loadBalancers returns the targets by the names of their load balancers.
func (l *Loop) loadBalancers() map[string][]string {
	if l.cfg.LoadBalancers == nil {
		return nil
	}
	return l.cfg.LoadBalancers()
}

// balance has the instances of a group registered and deregistered as its view
// says. l.mu is held.
func (l *Loop) balance(ctx context.Context, v plan.View, defined bool) {
	b, key := l.balancers, v.Group.Key
	if len(v.Group.LoadBalancers) == 0 && len(b.seats[key]) == 0 {
		l.solved(key)
		return
	}
	if b.port == nil {
		l.tellUnbalanced(ctx, v.Group)
		return
	}
	targets := targetsOf(v.Group, l.loadBalancers())
	b.expect(targets)
	// What a group is that can't be read, or is no more, says nothing of its load
	// balancers: who is registered stays until it leaves.
	frozen := !defined || v.Group.Removed || v.Group.Disabled != ""
	wishes := wishesOf(v, frozen)
	b.invite(v, wishes, targets)
	for _, s := range slices.SortedFunc(maps.Keys(b.seats[key]), compareSeats) {
		w, there := wishes[s.id]
		if x := b.seats[key][s]; !there && x.givenUp(v.Now) {
			b.drop(key, s)
			continue
		}
		if _, wanted := targets[s.target]; !there || !wanted && !frozen {
			w = out
		}
		l.steer(ctx, s, b.seats[key][s], w, v.Now)
	}
	if b.settled(key, targets) {
		l.solved(key)
	}
}

// invite makes seats for those that are to be registered.
func (b *balancers) invite(v plan.View, wishes map[fleet.InstanceID]wish, targets map[string]string) {
	for _, i := range v.Instances {
		if wishes[i.ID] != in {
			continue
		}
		for target := range targets {
			b.seat(v.Group.Key, seat{i.ID, target}, refOf(i.Instance))
		}
	}
}

// tellUnbalanced reports, once, that a group asks for what the provider has not.
func (l *Loop) tellUnbalanced(ctx context.Context, g fleet.Group) {
	if l.balancers.troubled[g.Key] {
		return
	}
	err := fmt.Errorf("register with load_balancers %v: %w", g.LoadBalancers, provider.ErrUnsupported)
	l.trouble(ctx, err, g.Key, "")
}

// trouble reports a problem of a group with its load balancers. l.mu is held.
func (l *Loop) trouble(ctx context.Context, err error, key fleet.GroupKey, id fleet.InstanceID) {
	l.balancers.troubled[key] = true
	l.workers.Go(func() { l.fail(ctx, because(ReasonLoadBalancer, err), key, id) })
}

// solved ends the problems of a group with its load balancers. l.mu is held.
func (l *Loop) solved(key fleet.GroupKey) {
	if !l.balancers.troubled[key] {
		return
	}
	delete(l.balancers.troubled, key)
	if l.cfg.Solved != nil {
		l.workers.Go(func() { l.cfg.Solved(key, ReasonLoadBalancer) })
	}
}

// settled reports whether all that a group asks of load balancers is done.
func (b *balancers) settled(key fleet.GroupKey, targets map[string]string) bool {
	for name := range targets {
		if !b.targets[name].read {
			return false
		}
	}
	for s, x := range b.seats[key] {
		if t := b.targets[s.target]; x.busy || due(x.state, x.want, t != nil && t.read) != none {
			return false
		}
	}
	return true
}

// expect has targets read of which nothing is known yet.
func (b *balancers) expect(targets map[string]string) {
	for name := range targets {
		if b.targets[name] == nil {
			b.targets[name] = &target{}
			select {
			case b.wake <- struct{}{}:
			default: // it knows already
			}
		}
	}
}

// seat makes room for what is known of a seat, if there is none yet.
func (b *balancers) seat(key fleet.GroupKey, s seat, ref provider.Ref) {
	if b.seats[key] == nil {
		b.seats[key] = map[seat]*sitter{}
	}
	if b.seats[key][s] != nil {
		return
	}
	x := &sitter{key: key, ref: ref}
	if t := b.targets[s.target]; t != nil && t.read {
		x.state = absent
	}
	b.seats[key][s] = x
}

// steer takes a seat's next step towards what is wanted. l.mu is held.
func (l *Loop) steer(ctx context.Context, s seat, x *sitter, want wish, now time.Time) {
	b := l.balancers
	if want == out && x.want != out {
		x.leavingAt = now
	}
	if want != x.want {
		x.failures, x.quietUntil = 0, time.Time{}
	}
	x.want = want
	t := b.targets[s.target]
	next := due(x.state, want, t != nil && t.read)
	switch {
	case x.busy:
	case next == none && want == out:
		b.drop(x.key, s)
	case next == none:
	case x.quietUntil.After(now):
		l.wakeAt(x.key, x.quietUntil)
	default:
		x.busy = true
		l.workers.Go(func() { l.carry(ctx, s, x, next) })
	}
}

// drop forgets a seat that is given up, and tells who waits for the instance to
// have none.
func (b *balancers) drop(key fleet.GroupKey, s seat) {
	delete(b.seats[key], s)
	if len(b.seats[key]) == 0 {
		delete(b.seats, key)
	}
	if done := b.left[s.id]; done != nil && !b.sits(key, s.id) {
		close(done)
		delete(b.left, s.id)
	}
}

func (b *balancers) sits(key fleet.GroupKey, id fleet.InstanceID) bool {
	for s := range b.seats[key] {
		if s.id == id {
			return true
		}
	}
	return false
}

// leaving prepares an instance's leaving: it returns a channel that closes once
// it is registered nowhere, nil if it is not, and until when to wait for that.
// l.mu is held.
func (l *Loop) leaving(r fleet.Instance, now time.Time) (gone <-chan struct{}, until time.Time) {
	b, key := l.balancers, r.GroupKey()
	g, _ := l.cfg.Groups.Group(key)
	if b.port == nil || r.Provider.ID == "" {
		return nil, until
	}
	if r.RegisteredAt != nil { // else it never got as far as a load balancer
		targets := targetsOf(g, l.loadBalancers())
		b.expect(targets)
		for name := range targets {
			if !b.targets[name].read {
				b.seat(key, seat{r.ID, name}, refOf(r))
			}
		}
	}
	since := now
	for s, x := range b.seats[key] {
		if s.id == r.ID && x.want == out && x.leavingAt.Before(since) {
			since = x.leavingAt
		}
	}
	if !b.sits(key, r.ID) {
		return nil, until
	}
	if b.left[r.ID] == nil {
		b.left[r.ID] = make(chan struct{})
	}
	l.mark(key)
	return b.left[r.ID], since.Add(leaveFor)
}
