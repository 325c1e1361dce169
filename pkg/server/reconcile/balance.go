package reconcile

import (
	"context"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/balance"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

func newBalancer(l *Loop) *balance.Balancer {
	cfg := balance.Config{
		Targets: l.cfg.LoadBalancers, Records: l.cfg.Ledger.Instances, Timeout: l.requestTimeout, Go: l.workers.Go, Logger: l.log,
		Again: func(key fleet.GroupKey) { l.schedule.Mark(key) },
		Groups: func() (groups []fleet.Group) {
			for _, key := range l.cfg.Groups.Keys() {
				g, _ := l.cfg.Groups.Group(key)
				groups = append(groups, g)
			}
			return groups
		},
		Report: func(ctx context.Context, err error, key fleet.GroupKey, id fleet.InstanceID) {
			l.reports.fail(ctx, problems.Because(problems.ReasonLoadBalancer, err), key, id)
		},
	}
	cfg.Port, _ = provider.LoadBalancerOf(l.cfg.Provider)
	cfg.Solved = func(key fleet.GroupKey) { l.reports.clear(key, "", problems.ReasonLoadBalancer) }
	return balance.New(cfg)
}

// balance updates the load balancer registrations of a group from its view.
func (l *Loop) balance(ctx context.Context, v plan.View, defined bool) {
	if l.balancer.Idle(v.Group) {
		return
	}
	members := make([]balance.Member, len(v.Instances))
	for n, i := range v.Instances {
		members[n] = memberOf(&v.Group, i)
	}
	l.schedule.MarkAt(v.Group.Key, l.balancer.Update(ctx, v.Group, defined, members, v.Now))
}

func memberOf(g *fleet.Group, i plan.Instance) balance.Member {
	return balance.Member{
		Instance: *i.Instance, Dead: i.VM.Dead(), Reported: !i.Health.LastReportAt.IsZero(),
		Stopping: !i.Health.ShuttingDownAt.IsZero() || i.Health.Notice != nil,
		Bare:     i.Health.WithoutFiles && g.AwaitsFiles(),
	}
}
