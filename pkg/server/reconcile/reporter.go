package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/pacing"
	"github.com/nstance/nstance/pkg/server/problems"
)

// reporter tells what happens: problems to their set, changes to the callers that follow them, and
// the end of the term to the loop. It is safe for concurrent use.
type reporter struct {
	problems  Problems
	notLeader func(error) bool                              // nil: only the context ends the loop
	changed   func(key fleet.GroupKey, id fleet.InstanceID) // see Config.Changed
	record    func(fleet.Event)                             // see Config.Record
	end       context.CancelCauseFunc                       // set before the first worker starts
}

func newReporter(cfg Config) *reporter {
	r := &reporter{problems: cfg.Problems, notLeader: cfg.NotLeader, changed: cfg.Changed, record: cfg.Record}
	if r.record == nil {
		r.record = func(fleet.Event) {}
	}
	if r.changed == nil {
		r.changed = func(fleet.GroupKey, fleet.InstanceID) {}
	}
	return r
}

// isEnd reports whether an error means that the term is over.
func (r *reporter) isEnd(err error) bool { return r.notLeader != nil && r.notLeader(err) }

// fail handles the errors of all workers: it ends the term if the error means that, and
// otherwise reports a problem. Errors after the end of ctx are ignored.
func (r *reporter) fail(ctx context.Context, err error, key fleet.GroupKey, id fleet.InstanceID) {
	switch {
	case err == nil || ctx.Err() != nil:
	case r.isEnd(err):
		r.end(err)
	case toldAsLasting(err):
	default:
		p := &fleet.Problem{Message: err.Error(), Group: key, Instance: id}
		p.Reason = problems.ReasonOf(err, problems.ReasonStorage)
		p.Lasts = p.Reason == problems.ReasonLoadBalancer
		r.report(p)
	}
}

// tell tells the callers of instances whose observable state has changed.
func (r *reporter) tell(news ...observe.News) {
	for _, n := range news {
		if n.Changed {
			r.changed(n.Record.GroupKey(), n.Record.ID)
		}
	}
}

// clear ends the problem of a reason of an instance, of all of a group (no id), or of the shard
// (the zero key).
func (r *reporter) clear(key fleet.GroupKey, id fleet.InstanceID, reason string) {
	r.problems.Clear(key, id, reason)
}

// creating reports that the creates of a group begin to fail, fail for another reason, or no longer
// fail.
func (r *reporter) creating(n pacing.News) {
	r.tellCreates(n)
	r.report(n.Problem)
	if n.Ended {
		r.clear(n.Group, "", problems.ReasonCreatesFailing)
	}
	if n.Began || n.Ended {
		r.changed(n.Group, "")
	}
}

// report reports a problem. It is a no-op if p is nil.
func (r *reporter) report(p *fleet.Problem) {
	if p != nil {
		p.At = time.Now()
		r.problems.Set(*p)
	}
}

// toldAsLasting reports whether an error is part of a problem that lasts, so that it
// is not told by itself. Load balancers have a throttling of their own.
func toldAsLasting(err error) bool {
	reason := problems.ReasonOf(err, problems.ReasonProvider)
	return reason == problems.ReasonDeleteRefused || reason == problems.ReasonProvider && errors.Is(err, provider.ErrThrottled)
}
