package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/pacing"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/schedule"
	"github.com/nstance/nstance/pkg/server/subnets"
	"github.com/nstance/nstance/pkg/server/traces"
)

// launcher creates instances: decided creates wait in its queue until the shard's rate and
// concurrency allow them. Queueing and dispatching belong to the deciding goroutine; the other
// methods are safe for concurrent use.
type launcher struct {
	groups   Groups
	builder  Builder
	newID    func(kind string, now time.Time) (fleet.InstanceID, error)
	schedule *schedule.Schedule
	observed *observe.State
	cloud    *paced.Provider
	records  *records
	pacer    *pacing.Pacer
	subnets  *subnets.Chooser
	reports  *reporter
	workers  *sync.WaitGroup
	backoff  backoff
	starts   *traces.Starts
	// replacing is Config.Replacing.
	replacing func(id fleet.InstanceID, lost time.Time)
	log       *slog.Logger

	mu    sync.Mutex
	queue *fair.Queue[*launch]
	begun map[fleet.InstanceID]*launch // may not be in the ledger yet
}

// launch is one create, from decision to outcome.
type launch struct {
	group     fleet.Group
	record    fleet.Instance // only the id if a recorded create is resumed; zero: a new instance
	onDemand  bool
	decidedAt time.Time
	began     time.Time
	active    bool      // a worker is active
	counted   bool      // it occupies a slot
	failures  int       // of writing the record
	retryAt   time.Time // when to retry a failed write of the record
	triedAt   time.Time // when that write ended
	unlisted  bool      // a relist that began after triedAt did not show the record
	repeated  bool      // the outcome of an earlier create call is unknown

	replaces  fleet.InstanceID // the lost instance it replaces; empty: none
	immediate bool             // the lost instance had settled
	probe     bool             // of a group whose creates fail
	loss      observe.Loss     // of that instance
	reason    string           // of a new instance
	why       *plan.Why        // of a new instance; shared
}

// Turn implements fair.Create.
func (x *launch) Turn() fair.Turn {
	return fair.Turn{Group: x.group.Key, Immediate: x.immediate, Probe: x.probe, OnDemand: x.record.OnDemand}
}

// started returns the attempt that begins, for its trace.
func (l *launcher) started(x *launch) traces.Launch {
	return traces.Launch{
		Instance: x.record, Record: l.records.get, Reason: x.reason, Replaces: x.replaces, Sign: x.loss.Sign, LostAt: x.loss.At,
		DecidedAt: x.decidedAt, StartedAt: x.began,
	}
}

func newLauncher(l *Loop) *launcher {
	return &launcher{
		groups: l.cfg.Groups, builder: l.cfg.Builder, newID: l.cfg.NewID, schedule: l.schedule, observed: l.observed,
		cloud: l.cloud, records: l.records, pacer: l.pacer, subnets: newSubnets(l), reports: l.reports, workers: &l.workers,
		backoff: l.backoff, starts: l.cfg.Starts, replacing: l.cfg.Replacing, log: l.log,
		queue: fair.New[*launch](l.cfg.CreateRate), begun: map[fleet.InstanceID]*launch{},
	}
}

func newSubnets(l *Loop) *subnets.Chooser {
	used := func() []string { return subnetsOf(l.cfg.Groups) }
	cfg := subnets.Config{Used: used, Timeout: l.requestTimeout, Go: l.workers.Go, Logger: l.log}
	cfg.Port, _ = provider.SubnetCapacityOf(l.cfg.Provider)
	cfg.Missing = func(ctx context.Context, err error) { l.reports.fail(ctx, err, fleet.GroupKey{}, "") }
	return subnets.New(cfg)
}

// retune applies another rate and clears the queue.
func (l *launcher) retune(r fair.Rate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.Retune(r)
}

// clear forgets all creates that have not begun.
func (l *launcher) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.Clear()
}

// set replaces a group's queued creates after a decision. If the group's pace has changed
// since the view was taken, they are dropped: the group is marked then and decided again.
func (l *launcher) set(v plan.View, launches []*launch) {
	fails := l.pacer.Failing(v.Group.Key)
	for _, x := range launches {
		x.probe = fails && !x.immediate && !x.onDemand
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.pacer.Pace(v.Group).Equal(v.Pace) {
		launches = nil
	}
	l.queue.Set(v.Group.Key, launches)
}

// next returns the create that may begin now; nil: none. Then it returns when the rate allows one;
// zero: not without an event.
func (l *launcher) next(now time.Time) (x *launch, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x, _, at = l.queue.Next(now, l.cloud)
	return x, at
}

// dispatch starts the creates that the shard's rate and concurrency allow, and returns when the
// rate allows the next one; zero: not without an event.
func (l *launcher) dispatch(ctx context.Context, now time.Time) time.Time {
	for ctx.Err() == nil {
		x, at := l.next(now)
		if x == nil {
			return at
		}
		l.start(ctx, x, now)
	}
	return time.Time{}
}

// start starts one create.
func (l *launcher) start(ctx context.Context, x *launch, now time.Time) {
	x.began = now
	switch {
	case x.record.ID == "":
		id, err := l.newID(x.group.Kind, now)
		if err != nil {
			err = problems.Because(problems.ReasonBuild, err)
			told := l.refused(x, err, now)
			l.schedule.Mark(x.group.Key)
			if !told {
				l.workers.Go(func() { l.reports.fail(ctx, err, x.group.Key, "") })
			}
			return
		}
		x.record = x.newRecord(id, now)
	case !l.underWay()[x.record.ID]: // it is resumed
		r, ok := l.records.get(x.record.ID)
		if !ok || r.Phase != fleet.Pending {
			return // changed since the decision
		}
		x.record = r
	}
	lost, ok := l.observed.StartCreate(x.record.ID, x.replaces, x.immediate, now)
	if !ok {
		return
	}
	if lost.Sign != "" {
		x.loss = lost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	x.active, x.counted = true, true
	l.begun[x.record.ID] = x
	l.queue.Began(x)
	l.workers.Go(func() { l.launch(ctx, x) })
}

// newRecord returns the record of a new instance.
func (x *launch) newRecord(id fleet.InstanceID, now time.Time) fleet.Instance {
	at := now.UTC()
	return fleet.Instance{
		ID: id, Tenant: x.group.Key.Tenant, Group: x.group.Key.Name, GroupRevision: x.group.RecordRevision,
		Phase: fleet.Pending, CreatedAt: at,
		Provider: fleet.ProviderRef{InstanceType: x.group.InstanceType, CreateAttemptedAt: &at},
		Hashes:   x.group.Hashes,
	}
}

// underWay returns the ids of the creates that have begun and not ended.
func (l *launcher) underWay() map[fleet.InstanceID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make(map[fleet.InstanceID]bool, len(l.begun))
	for id := range l.begun {
		ids[id] = true
	}
	return ids
}

// of returns the records of a group's creates that have begun.
func (l *launcher) of(key fleet.GroupKey) (begun []fleet.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.begun {
		if x.group.Key == key {
			begun = append(begun, x.record)
		}
	}
	return begun
}

// refused records a failed create, and reports whether it is covered by the problem that the
// group's creates fail. Creates of on-demand instances don't count, since they may have another
// instance type; nor do failures of the store or throttling.
func (l *launcher) refused(x *launch, err error, now time.Time) (told bool) {
	if g, isPresent := l.groupOf(x); isPresent && !x.record.OnDemand && l.countsAsRefusal(err) {
		told = l.pacer.Refused(g, pacing.Failure{
			ID: x.record.ID, Began: x.began, At: now, Reason: problems.ReasonOf(err, problems.ReasonProvider), Message: problems.Text(err),
		})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.Drop(x.group.Key) // the next pass decides again
	return told
}

func (l *launcher) countsAsRefusal(err error) bool {
	switch {
	case err == nil, errors.Is(err, provider.ErrThrottled), errors.Is(err, context.Canceled), l.reports.isEnd(err):
		return false
	default:
		return provider.Definite(err) || problems.ReasonOf(err, "") != problems.ReasonStorage
	}
}

// accepted records that the provider accepted a create.
func (l *launcher) accepted(x *launch) {
	if g, isPresent := l.groupOf(x); isPresent && !x.record.OnDemand {
		l.pacer.Accepted(g, x.record.ID, x.began)
	}
}

// groupOf returns the current desired state of a create's group, and whether the create has its
// current Infra hash.
func (l *launcher) groupOf(x *launch) (g fleet.Group, isPresent bool) {
	made := x.group.Hashes
	if x.record.ID != "" {
		made = x.record.Hashes
	}
	g = desired(l.groups, x.group.Key)
	return g, made.Infra == g.Hashes.Infra
}

// release frees the slot of a create. Idempotent.
func (l *launcher) release(x *launch) {
	l.mu.Lock()
	if x.counted {
		x.counted = false
		l.queue.Ended(x)
	}
	l.mu.Unlock()
	l.schedule.Wake()
}

// onDemandWait limits the back-off of on-demand instances, since a caller waits for them.
const onDemandWait = 5 * time.Minute

// again draws the back-off until a create is retried with the same id.
func (l *launcher) again(x *launch, failures int) time.Duration {
	if x.record.OnDemand {
		return l.backoff.draw(failures, onDemandWait)
	}
	return l.backoff.draw(failures, longest)
}

// backoff is that of failing creates, by the current tuning.
type backoff struct {
	tuning  *atomic.Pointer[Tuning]
	uniform func() float64
}

// draw draws the back-off after a number of consecutive failures, at most most.
func (b backoff) draw(failures int, most time.Duration) time.Duration {
	return pacing.Backoff(min(b.tuning.Load().CreateBackoff, most)).Draw(failures, b.uniform)
}

// ended applies a launch's outcome, and reports whether a failure is reported already. An
// instance whose record may exist although its write failed stays in begun and is retried with
// the same id. The observation is updated last: until then the instance is busy and nothing is
// decided about it.
func (l *launcher) ended(x *launch, out createResult, err error, now time.Time) (told bool) {
	l.release(x)
	switch out {
	case putOff:
		l.postpone(x, err, now)
		return false
	case unclear, unmade:
		told = l.refused(x, err, now)
	case made, unnoted:
		l.accepted(x)
	case unrecorded: // a failure of the store
	}
	l.mu.Lock()
	x.active = false
	if out == unrecorded {
		x.failures++
		x.retryAt = now.Add(stepBackoff().Delay(x.failures))
		x.triedAt, x.unlisted = now, false
	} else {
		delete(l.begun, x.record.ID)
	}
	l.mu.Unlock()
	switch out {
	case unnoted:
		l.observed.FailCreate(x.record.ID, err, stepBackoff().Delay, now)
	case unclear:
		l.observed.FailCreate(x.record.ID, err, func(failures int) time.Duration { return l.again(x, failures) }, now)
	case unrecorded:
		l.observed.FailCreate(x.record.ID, err, nil, now)
	default:
		l.observed.EndCreate(x.record.ID, err, now)
	}
	if out == made && x.replaces == "" {
		l.schedule.MarkSoon(now, x.group.Key)
		return
	}
	l.schedule.Mark(x.group.Key)
	return told
}
