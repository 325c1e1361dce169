package leader

import (
	"errors"
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/groups"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// This file wires a term to its reconcile loop.

func (t *Term) loopConfig() reconcile.Config {
	shard := t.config.shard()
	tuned := tuning(shard)
	return reconcile.Config{
		Ledger: t.records, Fence: t.cfg.Fence, Groups: groups.Current(t.groups), Builder: t.builder, Provider: t.cfg.Provider,
		NewID: func(kind string, now time.Time) (fleet.InstanceID, error) {
			return fleet.NewID(kind, now, t.cfg.Random)
		},
		Uniform:    t.cfg.Uniform,
		CreateRate: tuned.CreateRate, CreateBackoff: tuned.CreateBackoff, MaxSurge: tuned.MaxSurge,
		RequestTimeout: tuned.RequestTimeout, SweepInterval: tuned.SweepInterval, Quiet: tuned.Quiet, Called: t.cfg.Called,
		FirstSweep: time.Duration(shard.Server.LeaderElection.LeaseDuration),
		First:      t.vms, Listing: t.cfg.Listing,
		Certified: func(i fleet.Instance, names []string, shown []netip.Addr) (string, []netip.Addr) {
			return t.known.Certified(i, names, shown)
		},
		LoadBalancers: t.loadBalancers,
		NotLeader:     func(err error) bool { return errors.Is(err, election.ErrNotLeader) },
		Problems:      t.problems, Changed: t.changed, Record: t.history.Record, Rotating: t.rotations.decided,
		Replacing: func(id fleet.InstanceID, lost time.Time) { t.cfg.Replacements.Created(id, lost, t.cfg.Now()) },
		Starts:    t.cfg.Starts,
		Logger:    t.cfg.Logger,
	}
}

func tuning(c *config.Shard) reconcile.Tuning {
	s := c.Server
	return reconcile.Tuning{
		CreateRate:     fair.Rate{PerSecond: s.CreateRate.PerSecond, Burst: s.CreateRate.Burst, Concurrency: s.CreateRate.Concurrency},
		CreateBackoff:  time.Duration(s.CreateBackoff.Max),
		MaxSurge:       s.Rotation.MaxSurge,
		RequestTimeout: time.Duration(s.RequestTimeout), SweepInterval: time.Duration(s.GarbageCollection.Interval),
		// Agents keep the interval that they were made with, and wait for no longer if they are refused.
		Quiet: max(time.Duration(s.GarbageCollection.RegistrationTimeout)+s.Health.Silence(), rpc.RefusedWait+2*rpc.Backoff().Limit),
	}
}

// loadBalancers returns the targets of the configured load balancers, by name.
func (t *Term) loadBalancers() map[string][]string {
	defined := t.config.shard().LoadBalancers
	targets := make(map[string][]string, len(defined))
	for name, lb := range defined {
		targets[name] = lb.TargetGroupARNs
	}
	return targets
}

// changed propagates the change of an instance, and cuts the streams of one that is being
// removed.
func (t *Term) changed(key fleet.GroupKey, id fleet.InstanceID) {
	defer t.watches.Changed(key, id) // last, when everything that watches report is up to date
	t.shown.pruneOf(key)
	if id == "" {
		return
	}
	defer t.follow(id)
	i, ok := t.records.Get(id)
	if !ok || i.Phase.Ending() {
		t.clocks.forget(id)
		t.cfg.Cut(id)
	}
	if !ok {
		i = fleet.Instance{ID: id, Phase: fleet.Deleted} // its record is gone
	}
	t.keys.Follow(i)
	t.known.Follow(i)
	t.shown.progress(key, i)
}

// touched enqueues the group of an instance whose record may have changed.
func (t *Term) touched(key fleet.GroupKey, id fleet.InstanceID) {
	t.loop.Enqueue(key)
	t.changed(key, id)
}
