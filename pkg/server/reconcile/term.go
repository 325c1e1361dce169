package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// term is what the parts of a loop share: the ports, what was observed, the
// schedule of passes, the workers, and the place where errors end. It decides
// nothing.
type term struct {
	cfg      Config
	log      *slog.Logger
	tuning   atomic.Pointer[Tuning]
	takeover atomic.Pointer[time.Time] // since when agents can make themselves heard
	end      context.CancelCauseFunc   // set before the first worker starts
	workers  sync.WaitGroup
	schedule *schedule
	observed *observations
	cloud    *cloud
	records  *records
	pacing   *pacing
}

func newTerm(cfg Config) *term {
	if cfg.Changed == nil {
		cfg.Changed = func(fleet.GroupKey, fleet.InstanceID) {}
	}
	t := &term{cfg: cfg, log: cfg.Logger, schedule: newSchedule()}
	tuning := cfg.tuning()
	t.tuning.Store(&tuning)
	t.takeover.Store(&time.Time{})
	t.observed = newObservations(t.schedule, provider.Consistent(cfg.Provider), time.Now())
	t.cloud = newCloud(cfg, t.requestTimeout, t.workers.Go, t.throttled)
	t.pacing = newPacing(t)
	t.records = &records{ledger: cfg.Ledger, writes: newSlots(maxWrites), observed: t.observed, log: cfg.Logger}
	return t
}

// backoff draws the wait after the n-th create in a row that failed.
func (t *term) backoff(n int) time.Duration {
	return createBackoff(t.tuning.Load().CreateBackoff).Draw(n, t.cfg.Uniform)
}

func (t *term) requestTimeout() time.Duration { return t.tuning.Load().RequestTimeout }

// markAll has every group decided anew that is defined or has records.
func (t *term) markAll() {
	t.schedule.mark(t.cfg.Groups.Keys()...)
	for _, i := range t.cfg.Ledger.Instances() {
		t.schedule.mark(i.GroupKey())
	}
}

// work has a worker take one step of an instance's life, or, without an id,
// edit the group itself: one step at a time for each, and not too soon after
// one that failed.
func (t *term) work(ctx context.Context, key fleet.GroupKey, id fleet.InstanceID, now time.Time, step func() error) {
	ok, notBefore := t.observed.begin(key, id, now)
	if !ok {
		t.schedule.markAt(key, notBefore)
		return
	}
	t.workers.Go(func() {
		err := step()
		repeated := t.observed.finish(key, id, err, time.Now())
		t.schedule.mark(key)
		switch {
		case id == "" && err != nil:
			err = because(ReasonStorage, fmt.Errorf("edit group %s: %w", key, err))
		case repeated:
			return // it was reported, and lasts
		}
		t.cfg.Changed(key, id)
		t.fail(ctx, err, key, id)
	})
}

// reasoned is an error that knows what kind of problem it is.
type reasoned struct {
	reason string
	error
}

func (r *reasoned) Unwrap() error { return r.error }

func because(reason string, err error) error { return &reasoned{reason: reason, error: err} }

// fail is where the errors of all workers end: the end of the term, nothing at
// all when it is over anyway, or a problem.
func (t *term) fail(ctx context.Context, err error, key fleet.GroupKey, id fleet.InstanceID) {
	switch {
	case err == nil || ctx.Err() != nil:
	case t.cfg.NotLeader != nil && t.cfg.NotLeader(err):
		t.end(err)
	case toldAsLasting(err):
	default:
		p := &fleet.Problem{Reason: ReasonStorage, Message: err.Error(), Group: key, Instance: id}
		if r := (*reasoned)(nil); errors.As(err, &r) {
			p.Reason = r.reason
		}
		t.report(p)
	}
}

// solved tells that a group, or with the zero key the shard, has no problem of a reason
// any more.
func (t *term) solved(key fleet.GroupKey, reason string) {
	if t.cfg.Solved != nil {
		t.cfg.Solved(key, reason)
	}
}

// report tells of a problem; nil is none.
func (t *term) report(p *fleet.Problem) {
	if p != nil {
		p.At = time.Now()
		t.cfg.Report(*p)
	}
}
