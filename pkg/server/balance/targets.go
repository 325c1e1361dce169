package balance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Run reads the registrations of each target at takeover and every hour until ctx ends, so
// that no instance is registered twice and no registration is left behind.
func (b *Balancer) Run(ctx context.Context) {
	if b.cfg.Port == nil {
		return
	}
	for ctx.Err() == nil {
		names, next := b.targetsDue(time.Now())
		for _, name := range names {
			b.read(ctx, name)
		}
		if len(names) > 0 {
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
		case <-b.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// expect schedules reads of targets that are not known yet.
func (b *Balancer) expect(targets map[string]string) {
	for name := range targets {
		if b.targets[name] == nil {
			b.targets[name] = &target{}
			select {
			case b.wake <- struct{}{}:
			default: // already signalled
			}
		}
	}
}

// targetsDue returns the targets to read now, and when the next one is due. Targets that
// neither the config nor a registration uses are forgotten.
func (b *Balancer) targetsDue(now time.Time) (names []string, next time.Time) {
	used := map[string]bool{}
	if b.cfg.Targets != nil {
		for _, targets := range b.cfg.Targets() {
			for _, name := range targets {
				used[name] = true
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, statuses := range b.statuses {
		for r := range statuses {
			used[r.target] = true
		}
	}
	for name := range used {
		if b.targets[name] == nil {
			b.targets[name] = &target{}
		}
	}
	next = now.Add(rereadTargets) // to pick up new targets of the config
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

func (b *Balancer) read(ctx context.Context, name string) {
	asked := time.Now()
	asking, cancel := context.WithTimeout(ctx, b.cfg.Timeout())
	ids, err := b.cfg.Port.Targets(asking, name)
	cancel()
	if err != nil {
		b.unread(ctx, name, err)
		return
	}
	for _, key := range b.learn(name, ids, asked) {
		b.cfg.Again(key)
	}
}

// unread schedules a retry of a target that can't be read, and reports the error for every
// group that uses it.
func (b *Balancer) unread(ctx context.Context, name string, err error) {
	labels := map[fleet.GroupKey]string{}
	for _, g := range b.cfg.Groups() {
		if label, ok := b.targetsOf(g)[name]; ok {
			labels[g.Key] = label
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.targets[name]
	t.failures++
	t.due = time.Now().Add(targetBackoff().Delay(t.failures))
	for key, label := range labels {
		b.trouble(ctx, fmt.Errorf("list the registrations of %s (%s): %w", label, name, err), key, "")
	}
}

// learn applies the registrations of a target as read at asked, except those changed by a
// later call, and returns the affected groups. VMs without a record are ignored.
func (b *Balancer) learn(name string, ids []string, asked time.Time) (concerned []fleet.GroupKey) {
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	records := b.cfg.Records()
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.targets[name] = target{read: true, due: time.Now().Add(rereadTargets)}
	for _, i := range records {
		if i.Provider.ID != "" && there[i.Provider.ID] {
			b.track(registration{i.ID, name}, i)
		}
	}
	for key, statuses := range b.statuses {
		for r, s := range statuses {
			if r.target != name || s.busy || s.answeredAt.After(asked) {
				continue
			}
			s.actual = deregistered
			if there[s.ref.ProviderID] {
				s.actual = registered
			}
			concerned = append(concerned, key)
		}
	}
	return concerned
}
