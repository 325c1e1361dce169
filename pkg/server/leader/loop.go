package leader

import (
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// This file is what a term offers to its loop.

func (t *Term) loopConfig() reconcile.Config {
	shard := t.config.shard()
	tuned := tuning(shard)
	return reconcile.Config{
		Ledger: t.records, Fence: t.cfg.Fence, Groups: t.groups, Builder: t.builder, Provider: t.cfg.Provider,
		NewID: func(kind string, now time.Time) (fleet.InstanceID, error) {
			return fleet.NewID(kind, now, t.cfg.Random)
		},
		Uniform:    t.cfg.Uniform,
		CreateRate: tuned.CreateRate, CreateBackoff: tuned.CreateBackoff, MaxSurge: tuned.MaxSurge,
		RequestTimeout: tuned.RequestTimeout, SweepInterval: tuned.SweepInterval,
		FirstSweep:    time.Duration(shard.Server.LeaderElection.LeaseDuration),
		Listing:       t.cfg.Listing,
		LoadBalancers: t.loadBalancers,
		NotLeader:     func(err error) bool { return errors.Is(err, election.ErrNotLeader) },
		Report:        t.problems.report, Solved: t.problems.solved, Changed: t.changed,
		Logger: t.cfg.Logger,
	}
}

func tuning(c *config.Shard) reconcile.Tuning {
	s := c.Server
	return reconcile.Tuning{
		CreateRate: reconcile.CreateRate{
			PerSecond: s.CreateRate.PerSecond, Burst: s.CreateRate.Burst, Concurrency: s.CreateRate.Concurrency,
		},
		CreateBackoff:  time.Duration(s.CreateBackoff.Max),
		MaxSurge:       s.Rotation.MaxSurge,
		RequestTimeout: time.Duration(s.RequestTimeout), SweepInterval: time.Duration(s.GarbageCollection.Interval),
	}
}

// loadBalancers are the targets of the load balancers that the config defines, by
// their names.
func (t *Term) loadBalancers() map[string][]string {
	defined := t.config.shard().LoadBalancers
	targets := make(map[string][]string, len(defined))
	for name, lb := range defined {
		targets[name] = lb.TargetGroupARNs
	}
	return targets
}

// changed takes note of every instance that changed, and cuts the streams of one
// that is on its way out.
func (t *Term) changed(key fleet.GroupKey, id fleet.InstanceID) {
	defer t.watches.Changed(key, id) // when all that is told of it is up to date
	t.problems.pruneOf(key)
	if id == "" {
		return
	}
	i, ok := t.records.Get(id)
	if !ok || i.Phase.Ending() {
		t.cfg.Cut(id)
	}
	if !ok {
		i = fleet.Instance{ID: id, Phase: fleet.Deleted} // its record is gone
	}
	t.keys.follow(i)
	t.problems.progress(key, i)
}

// touched has the loop look at an instance whose record may have changed.
func (t *Term) touched(key fleet.GroupKey, id fleet.InstanceID) {
	t.loop.Kick(key)
	t.changed(key, id)
}
