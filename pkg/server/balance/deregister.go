package balance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// Deregister waits until an instance is deregistered from all load balancers, at most
// deregisterFor. It makes no calls itself: Update deregisters instances that leave.
func (b *Balancer) Deregister(ctx context.Context, g fleet.Group, i fleet.Instance) {
	gone, until := b.leaving(b.targetsOf(g), i, time.Now())
	if gone == nil {
		return
	}
	b.cfg.Again(i.GroupKey())
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	select {
	case <-gone:
	case <-ctx.Done():
	case <-late.C:
		b.mu.Lock()
		defer b.mu.Unlock()
		err := fmt.Errorf("deregister instance %s: timed out; deleting it although a load balancer may still send it traffic", i.ID)
		b.trouble(ctx, err, i.GroupKey(), i.ID)
	}
}

// leaving returns a channel that is closed once the instance has no registration, and how
// long to wait for it. The channel is nil if the instance has none now.
func (b *Balancer) leaving(targets map[string]string, i fleet.Instance, now time.Time) (gone <-chan struct{}, until time.Time) {
	if b.cfg.Port == nil || i.Provider.ID == "" {
		return nil, until
	}
	key := i.GroupKey()
	b.mu.Lock()
	defer b.mu.Unlock()
	if i.RegisteredAt != nil { // otherwise it was never registered with a load balancer
		b.expect(targets)
		for name := range targets {
			if !b.targets[name].read {
				b.track(registration{i.ID, name}, i)
			}
		}
	}
	since := now
	for r, s := range b.statuses[key] {
		if r.id == i.ID && s.desired == deregistered && s.leavingAt.Before(since) {
			since = s.leavingAt
		}
	}
	if !b.has(key, i.ID) {
		return nil, until
	}
	if b.waiting[i.ID] == nil {
		b.waiting[i.ID] = make(chan struct{})
	}
	return b.waiting[i.ID], since.Add(deregisterFor)
}

// perform makes one call for a registration.
func (b *Balancer) perform(ctx context.Context, r registration, s *status, c call) {
	err := b.request(ctx, r.target, s.ref, c)
	b.mu.Lock()
	s.busy, s.answeredAt = false, time.Now()
	again := s.finish(c, err, s.answeredAt)
	if err != nil && !again {
		b.trouble(ctx, fmt.Errorf("%s instance %s, target %s: %w", c, r.id, r.target, err), s.key, r.id)
	}
	b.mu.Unlock()
	b.cfg.Again(s.key)
	if err == nil {
		b.cfg.Logger.Info("load balancer changed",
			slog.String("instance", string(r.id)), slog.String("call", string(c)), slog.String("target", r.target))
	}
}

func (b *Balancer) request(ctx context.Context, target string, vm provider.Ref, c call) error {
	select {
	case b.calls <- struct{}{}:
		defer func() { <-b.calls }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout())
	defer cancel()
	if c == register {
		return b.cfg.Port.Register(ctx, target, vm)
	}
	err := b.cfg.Port.Deregister(ctx, target, vm)
	if errors.Is(err, provider.ErrNotFound) {
		return nil // a target that does not exist has no registrations
	}
	return err
}

// finish applies a call's outcome, and reports whether it failed with the same error as the
// last one.
func (s *status) finish(c call, err error, now time.Time) (again bool) {
	if err == nil {
		s.actual = deregistered
		if c == register {
			s.actual = registered
		}
		s.failures, s.quietUntil, s.reported = 0, time.Time{}, ""
		return false
	}
	if !provider.Definite(err) && !errors.Is(err, provider.ErrNotFound) {
		s.actual = unset
	}
	s.failures++
	s.quietUntil = now.Add(callBackoff().Delay(s.failures))
	again = s.reported == err.Error()
	s.reported = err.Error()
	return again
}
