package leader

import (
	"errors"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// This file is what a term offers to its loop, and what it does beside it.

func (t *Term) loopConfig() reconcile.Config {
	shard := t.config.shard()
	tuned := tuning(shard)
	return reconcile.Config{
		Ledger: t.records, Fence: t.cfg.Fence, Groups: t.groups, Builder: t.builder, Provider: t.cfg.Provider,
		NewID: func(kind string, now time.Time) (fleet.InstanceID, error) {
			return fleet.NewID(kind, now, t.cfg.Random)
		},
		CreateRate: tuned.CreateRate, RequestTimeout: tuned.RequestTimeout, SweepInterval: tuned.SweepInterval,
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
	if ok {
		t.problems.progress(key, i)
	}
}

// touched has the loop look at an instance whose record may have changed.
func (t *Term) touched(key fleet.GroupKey, id fleet.InstanceID) {
	t.loop.Kick(key)
	t.changed(key, id)
}

// settle reads what is in doubt, and writes it: the write of unknown outcome either
// is there by then and is gone by, or can't land any more. Groups that can't be read
// are looked at again like a store that does not answer.
func (t *Term) settle() error {
	if err := t.groups.edit(t.ctx, func(d config.Dynamic) (config.Dynamic, error) { return d, nil }); err != nil {
		return err
	}
	return t.refresh.late()
}

// ReasonStuck is the reason of the problem that the leader can't act.
const ReasonStuck = "LeaderStuck"

// Report logs a problem and tells those who watch.
func (t *Term) Report(p fleet.Problem) { t.problems.report(p) }

// Over notes that the shard has no problem of a reason any more.
func (t *Term) Over(reason string) { t.problems.over(reason) }

// maxConfigProblems is how many problems of the static config are told to those who
// begin to watch. Whoever wants all of them asks for the config's status.
const maxConfigProblems = 100

// lastingProblems are those of the shard that last although nobody reports them
// again and again: why nothing is changed, and why the config in storage does not
// run.
func (t *Term) lastingProblems() (out []fleet.Problem) {
	add := func(reason, message string) {
		out = append(out, fleet.Problem{At: t.cfg.Now(), Reason: reason, Message: message})
	}
	if held := t.loop.Held(); held != "" {
		add(reconcile.ReasonOrphans, held)
	}
	// Told of now and then, it may have given way to another problem meanwhile.
	if stuck := t.cfg.Stuck(); stuck != "" && t.problems.of(fleet.GroupKey{}).Reason != ReasonStuck {
		add(ReasonStuck, stuck)
	}
	if c := t.config.now(); c.fromApplied {
		for _, p := range c.problems[:min(len(c.problems), maxConfigProblems)] {
			add(ReasonConfig, p.String())
		}
	}
	return out
}

// addressRetry is how soon the leader's address is tried for again.
const addressRetry = 5 * time.Second

// holdAddress takes the leader's address by force, and again whenever it turns
// out to be elsewhere.
func (t *Term) holdAddress() {
	ctx := provider.WithGuard(t.ctx, t.cfg.Fence.Check)
	for {
		wait := time.Duration(t.config.shard().Server.GarbageCollection.Interval)
		held, err := t.cfg.Network.Check(ctx)
		if err == nil && !held {
			err = t.cfg.Network.Assign(ctx)
		}
		if err != nil && ctx.Err() == nil {
			t.cfg.Logger.Error("can't take the leader's address", slog.Any("error", err))
			wait = min(wait, addressRetry)
		}
		if retry.Wait(ctx, wait) != nil {
			return
		}
	}
}
