package reconcile

import (
	"context"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/balance"
	"github.com/nstance/nstance/pkg/server/plan"
)

// ReasonLoadBalancer is the reason of problems with registering instances with
// load balancers.
const ReasonLoadBalancer = "LoadBalancerError"

func newBalancer(t *term) *balance.Balancer {
	cfg := balance.Config{
		Targets: t.cfg.LoadBalancers, Records: t.cfg.Ledger.Instances, Timeout: t.requestTimeout, Go: t.workers.Go, Logger: t.log,
		Again: func(key fleet.GroupKey) { t.schedule.mark(key) },
		Groups: func() (groups []fleet.Group) {
			for _, key := range t.cfg.Groups.Keys() {
				g, _ := t.cfg.Groups.Group(key)
				groups = append(groups, g)
			}
			return groups
		},
		Report: func(ctx context.Context, err error, key fleet.GroupKey, id fleet.InstanceID) {
			t.fail(ctx, because(ReasonLoadBalancer, err), key, id)
		},
	}
	cfg.Port, _ = provider.LoadBalancerOf(t.cfg.Provider)
	cfg.Solved = func(key fleet.GroupKey) { t.solved(key, ReasonLoadBalancer) }
	return balance.New(cfg)
}

// balance has the instances of a group registered and deregistered as its view says.
func (l *Loop) balance(ctx context.Context, v plan.View, defined bool) {
	if l.balancer.Idle(v.Group) {
		return
	}
	members := make([]balance.Member, len(v.Instances))
	for n, i := range v.Instances {
		members[n] = memberOf(i)
	}
	l.schedule.markAt(v.Group.Key, l.balancer.Update(ctx, v.Group, defined, members, v.Now))
}

func memberOf(i plan.Instance) balance.Member {
	return balance.Member{
		Instance: i.Instance, Dead: dead(i.VM), Reported: !i.Health.LastReportAt.IsZero(),
		Stopping: !i.Health.ShuttingDownAt.IsZero() || i.Health.Notice != nil,
	}
}
