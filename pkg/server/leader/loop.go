package leader

import (
	"context"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// This file is what a term offers to its loop.

func (t *Term) loopConfig() reconcile.Config {
	c := t.static.shard().Server
	return reconcile.Config{
		Ledger: records{t.ledger, t.writer, t.writes}, Fence: t.fence, Groups: t, Builder: t, Provider: t.cfg.Provider,
		NewID: func(kind string, now time.Time) (fleet.InstanceID, error) {
			return fleet.NewID(kind, now, t.cfg.Random)
		},
		CreateRate: reconcile.CreateRate{
			PerSecond: c.CreateRate.PerSecond, Burst: c.CreateRate.Burst, Concurrency: c.CreateRate.Concurrency,
		},
		RequestTimeout: time.Duration(c.RequestTimeout),
		SweepInterval:  time.Duration(c.GarbageCollection.Interval),
		FirstSweep:     time.Duration(c.LeaderElection.LeaseDuration),
		Listing:        t.cfg.Listing,
		LoadBalancers:  t.loadBalancers,
		NotLeader:      func(err error) bool { return errors.Is(err, election.ErrNotLeader) },
		Report:         t.troubles.report,
		Solved:         t.troubles.solved,
		Changed:        t.changed,
		Logger:         t.cfg.Logger,
	}
}

// records is the ledger as the loop needs it: read by anyone, written by this
// term, with a moment for writes under way when the term ends.
type records struct {
	*ledger.Ledger
	writer *ledger.Writer
	writes *writes
}

var _ reconcile.Ledger = records{}

// Create implements reconcile.Ledger.
func (r records) Create(ctx context.Context, i fleet.Instance) (created fleet.Instance, err error) {
	err = r.writes.do(ctx, func(ctx context.Context) error {
		created, err = r.writer.Create(ctx, i)
		return err
	})
	return created, err
}

// Update implements reconcile.Ledger.
func (r records) Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (updated fleet.Instance, err error) {
	err = r.writes.do(ctx, func(ctx context.Context) error {
		updated, err = r.writer.Update(ctx, id, change)
		return err
	})
	return updated, err
}

// Malformed implements reconcile.Ledger.
func (r records) Malformed() []reconcile.Malformed {
	found := r.Ledger.Malformed()
	out := make([]reconcile.Malformed, len(found))
	for n, m := range found {
		out[n] = reconcile.Malformed{Key: m.Key, ID: m.ID, Err: m.Err}
	}
	return out
}

// Remove implements reconcile.Ledger.
func (r records) Remove(ctx context.Context, id fleet.InstanceID) error {
	return r.writes.do(ctx, func(ctx context.Context) error { return r.writer.Remove(ctx, id) })
}

// changed hears of every instance that changed, and cuts the streams of one that
// is on its way out.
func (t *Term) changed(key fleet.GroupKey, id fleet.InstanceID) {
	defer t.watches.Changed(key, id) // when all that is told of it is up to date
	t.forgetTrouble(key)
	if id == "" {
		return
	}
	i, ok := t.ledger.Get(id)
	if !ok || i.Phase.Ending() {
		t.cfg.Cut(id)
	}
	if ok {
		t.troubles.progress(key, i)
	}
}

// Settings implements reconcile.Groups.
func (t *Term) Settings() plan.Settings {
	c := t.static.shard().Server
	return plan.Settings{
		ReportInterval: time.Duration(c.Health.ReportInterval), MissedReports: c.Health.MissedReports,
		ShutdownGrace:       time.Duration(c.Health.ShutdownGrace),
		RegistrationTimeout: time.Duration(c.GarbageCollection.RegistrationTimeout),
		DeletedRetention:    time.Duration(c.GarbageCollection.DeletedRecordRetention),
		EligibleAge:         time.Duration(c.Expiry.EligibleAge), ForcedAge: time.Duration(c.Expiry.ForcedAge),
		OnDemandAge: time.Duration(c.Expiry.OnDemandAge),
	}
}

// Keys implements reconcile.Groups: the groups that are defined.
func (t *Term) Keys() []fleet.GroupKey { return t.wanted.Keys() }

// Group implements reconcile.Groups: a group as it is wanted now.
func (t *Term) Group(key fleet.GroupKey) (fleet.Group, bool) { return t.wanted.Group(key) }

// Forget implements reconcile.Groups: it removes a group's dynamic entry.
func (t *Term) Forget(ctx context.Context, key fleet.GroupKey) error {
	return t.edit(ctx, func(d config.Dynamic) (config.Dynamic, error) { return d.Forget(key), nil })
}

// Settle implements reconcile.Groups: it takes ids that are gone out of a
// group's leaving list.
func (t *Term) Settle(ctx context.Context, key fleet.GroupKey, ids []fleet.InstanceID) error {
	return t.edit(ctx, func(d config.Dynamic) (config.Dynamic, error) { return d.Settle(key, ids), nil })
}

// loadBalancers are the targets of the load balancers that the config defines, by
// their names.
func (t *Term) loadBalancers() map[string][]string {
	defined := t.static.shard().LoadBalancers
	targets := make(map[string][]string, len(defined))
	for name, lb := range defined {
		targets[name] = lb.TargetGroupARNs
	}
	return targets
}
