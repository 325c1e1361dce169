package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// carry makes one call for a seat.
func (l *Loop) carry(ctx context.Context, s seat, x *sitter, c call) {
	err := l.callBalancer(ctx, s.target, x.ref, c)
	l.mu.Lock()
	now := time.Now()
	x.busy, x.answeredAt = false, now
	again := x.took(c, err, now)
	verb := map[call]string{register: "register", deregister: "deregister"}[c]
	if err != nil && !again {
		l.trouble(ctx, fmt.Errorf("%s instance %s, target %s: %w", verb, s.id, s.target, err), x.key, s.id)
	}
	l.mark(x.key)
	l.mu.Unlock()
	if err == nil {
		l.log.Info("load balancer changed", slog.String("instance", string(s.id)), slog.String("call", verb), slog.String("target", s.target))
	}
}

func (l *Loop) callBalancer(ctx context.Context, target string, vm provider.Ref, c call) error {
	free, err := l.balancers.calls.take(ctx)
	if err != nil {
		return err
	}
	defer free()
	ctx, cancel := context.WithTimeout(ctx, l.requestTimeout())
	defer cancel()
	if c == register {
		return l.balancers.port.Register(ctx, target, vm)
	}
	err = l.balancers.port.Deregister(ctx, target, vm)
	if errors.Is(err, provider.ErrNotFound) {
		return nil // nobody is registered with a target that is not there
	}
	return err
}

// took takes over a call's outcome, and reports whether it failed just as the
// last one did.
func (x *sitter) took(c call, err error, now time.Time) (again bool) {
	if err == nil {
		x.state = absent
		if c == register {
			x.state = registered
		}
		x.failures, x.quietUntil, x.told = 0, time.Time{}, ""
		return false
	}
	if !provider.Definite(err) && !errors.Is(err, provider.ErrNotFound) {
		x.state = unsure
	}
	x.failures++
	x.quietUntil = now.Add(balanceBackoff().Delay(x.failures))
	again = x.told == err.Error()
	x.told = err.Error()
	return again
}

// leave returns once an instance is registered with no load balancer any more. A
// load balancer that fails holds its deletion up for leaveFor at most.
func (l *Loop) leave(ctx context.Context, r fleet.Instance) {
	l.mu.Lock()
	gone, until := l.leaving(r, time.Now())
	l.mu.Unlock()
	if gone == nil {
		return
	}
	late, stop := after(until)
	defer stop()
	select {
	case <-gone:
	case <-ctx.Done():
	case <-late:
		l.mu.Lock()
		defer l.mu.Unlock()
		err := fmt.Errorf("deregister instance %s: it is deleted although a load balancer may still know it", r.ID)
		l.trouble(ctx, err, r.GroupKey(), r.ID)
	}
}

// keepTargets looks up who is registered with each target that the config names,
// at takeover and every hour, so that nobody is registered twice and nobody is
// left behind.
func (l *Loop) keepTargets(ctx context.Context) {
	if l.balancers.port == nil {
		return
	}
	for ctx.Err() == nil {
		names, next := l.targetsDue(time.Now())
		for _, name := range names {
			l.readTarget(ctx, name)
		}
		if len(names) > 0 {
			continue
		}
		at, stop := after(next)
		select {
		case <-ctx.Done():
		case <-l.balancers.wake:
		case <-at:
		}
		stop()
	}
}

// targetsDue returns the targets that are to be read now, or else when the next
// one is. Those that nobody names or uses any more are forgotten.
func (l *Loop) targetsDue(now time.Time) (names []string, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.balancers
	used := map[string]bool{}
	for _, targets := range l.loadBalancers() {
		for _, name := range targets {
			used[name] = true
		}
	}
	for _, seats := range b.seats {
		for s := range seats {
			used[s.target] = true
		}
	}
	for name := range used {
		if b.targets[name] == nil {
			b.targets[name] = &target{}
		}
	}
	next = now.Add(rereadTargets) // the config may name more by then
	for name, t := range b.targets {
		switch {
		case !used[name]:
			delete(b.targets, name)
		case !t.due.After(now):
			names = append(names, name)
		case t.due.Before(next):
			next = t.due
		}
	}
	slices.Sort(names)
	return names, next
}

func (l *Loop) readTarget(ctx context.Context, name string) {
	asked := time.Now()
	asking, cancel := context.WithTimeout(ctx, l.requestTimeout())
	ids, err := l.balancers.port.Targets(asking, name)
	cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.balancers.targets[name]
	now := time.Now()
	if err != nil {
		t.failures++
		t.due = now.Add(targetBackoff().Delay(t.failures))
		l.tellTarget(ctx, name, err)
		return
	}
	*t = target{read: true, due: now.Add(rereadTargets)}
	l.seated(name, ids, asked)
}

// seated takes over who is registered with a target, but for seats that a call
// was made for since. VMs that no record names are somebody else's. l.mu is held.
func (l *Loop) seated(name string, ids []string, asked time.Time) {
	b := l.balancers
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for _, r := range l.cfg.Ledger.Instances() {
		if r.Provider.ID != "" && there[r.Provider.ID] {
			b.seat(r.GroupKey(), seat{r.ID, name}, refOf(r))
		}
	}
	for key, seats := range b.seats {
		for s, x := range seats {
			if s.target != name || x.busy || x.answeredAt.After(asked) {
				continue
			}
			x.state = absent
			if there[x.ref.ProviderID] {
				x.state = registered
			}
			l.mark(key)
		}
	}
}

// tellTarget reports a target that can't be read to every group that uses it.
// l.mu is held.
func (l *Loop) tellTarget(ctx context.Context, name string, err error) {
	defined := l.loadBalancers()
	for _, key := range l.cfg.Groups.Keys() {
		g, _ := l.cfg.Groups.Group(key)
		if label, ok := targetsOf(g, defined)[name]; ok {
			l.trouble(ctx, fmt.Errorf("look up who is registered with %s, which is %s: %w", label, name, err), key, "")
		}
	}
}
