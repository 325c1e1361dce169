package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/schedule"
)

// relistPage is the number of records per list request. A sweep makes at most one such
// request on average: 30 per hour at the default interval of two minutes, however many
// records there are.
const relistPage = 1000

// noListing is the limit of vanished records while no listing is in progress.
const noListing = -1

// sweeper compares the provider's VMs with the ledger in both directions. One goroutine
// sweeps; the other methods are safe for concurrent use.
type sweeper struct {
	ledger    Ledger
	groups    Groups
	schedule  *schedule.Schedule
	observed  *observe.State
	cloud     *paced.Provider
	writeBack *writeBack
	reports   *reporter
	workers   *sync.WaitGroup
	tuning    *atomic.Pointer[Tuning]
	log       *slog.Logger

	creates creates
	again   again
	absence *absenceCheck
	retuned chan struct{}          // capacity 1: the interval may have changed
	held    atomic.Pointer[string] // why the loop holds; empty: it does not
	limit   atomic.Int64           // how many records may vanish in the listing in progress; noListing: none is

	accounted atomic.Bool // the records of all listed VMs have been read by key or are in memory
	recorded  atomic.Bool // the last sweep found a record of each VM

	// Used by the sweeping goroutine only.
	orphans  census.Orphans
	reported map[string]bool // by key: malformed objects that were reported
	asked    bool            // problems.ReasonOrphans was reported

	mu       sync.Mutex
	deletes  *slots                              // limits concurrent deletes of orphans, with the Get before each
	removing map[string]bool                     // by provider id: orphans being deleted
	claimed  map[fleet.InstanceID]fleet.GroupKey // VMs claimed only by a malformed object
	leaving  census.Leaving
}

// creates is the part of the launcher that a sweep needs.
type creates interface {
	underWay() map[fleet.InstanceID]bool
	// relisted is called when a listing of the store that began at the given time ends.
	relisted(began time.Time)
}

// again is the part of the poller that a sweep needs.
type again interface {
	pollAt(id fleet.InstanceID, at time.Time)
}

func newSweeper(l *Loop) *sweeper {
	s := &sweeper{
		ledger: l.cfg.Ledger, groups: l.cfg.Groups, schedule: l.schedule, observed: l.observed, cloud: l.cloud, writeBack: l.writeBack,
		reports: l.reports, workers: &l.workers, tuning: &l.tuning, log: l.log, creates: l.launcher, again: l.poller, absence: l.absence,
		retuned: make(chan struct{}, 1), orphans: census.NewOrphans(l.cfg.Called), removing: map[string]bool{},
		deletes: newSlots(l.cfg.CreateRate.Concurrency),
	}
	s.hold("")
	return s
}

// start applies the provider's first list. It returns how many VMs have no record, and how
// many are polled.
func (s *sweeper) start(ctx context.Context, records []fleet.Instance, vms []provider.VM, asked time.Time) (orphans, suspects int) {
	c := census.Compare(records, s.claims(), vms)
	s.absence.records.Store(int64(c.Live))
	found := s.absorb(ctx, c, asked)
	s.claim(c.Claimed)
	s.orphans.Lose(c.Orphans, time.Now())
	held, problem := s.orphans.Judge(c, s.tuning.Load().Quiet, time.Now())
	if s.hold(whyHeld(held, problem)); held {
		s.reports.tellHeld(ruleSweep, problems.ReasonOrphans, problem)
	}
	s.reportOrphans(problem, held)
	s.reportMalformed()
	if len(found.Unlisted) > census.Limit(c.Live, c.Live) { // no decisions before this is confirmed
		s.confirm(ctx, found)
	} else {
		s.workers.Go(func() { s.confirm(ctx, found) })
	}
	return len(c.Orphans), len(found.Refs)
}

// errNoList means that a sweep failed because the provider's VMs could not be listed.
var errNoList = errors.New("list the VMs")

// run sweeps until ctx ends, for the first time after the given delay, or the interval if that is
// shorter. If the list fails, the sweep is retried with a short back-off,
// since without a list missing VMs stay unnoticed.
func (s *sweeper) run(ctx context.Context, first time.Duration) {
	most, failures := first, 0
	for n := 0; s.await(ctx, time.Now(), most); {
		if err := s.sweep(ctx, n); err != nil {
			s.reports.fail(ctx, fmt.Errorf("sweep: %w", err), fleet.GroupKey{}, "")
			most = longest
			if errors.Is(err, errNoList) {
				failures++
				most = stepBackoff().Delay(failures)
			}
			continue
		}
		n++
		most, failures = longest, 0
	}
}

// longest means no limit.
const longest = time.Duration(math.MaxInt64)

// await waits until the sweep interval, but at most most, has passed since last. It follows
// changes of the interval. It reports false if ctx ended first.
func (s *sweeper) await(ctx context.Context, last time.Time, most time.Duration) bool {
	for {
		due, stop := after(last.Add(min(most, s.tuning.Load().SweepInterval)))
		select {
		case <-due:
			return true
		case <-ctx.Done():
			stop()
			return false
		case <-s.retuned:
			stop()
		}
	}
}

// sweep compares the provider with the ledger. It lists the provider first and the store
// second, so that an instance created in between does not look like a VM without a record.
func (s *sweeper) sweep(ctx context.Context, n int) error {
	asked := time.Now()
	vms, err := s.cloud.List(ctx)
	if err != nil {
		return problems.Because(problems.ReasonProvider, fmt.Errorf("%w: %w", errNoList, err))
	}
	if pages := 1 + len(s.ledger.Instances())/relistPage; n%pages == 0 {
		if err := s.relist(ctx); err != nil {
			return err
		}
	}
	if err := s.recall(ctx, vms); err != nil {
		return err
	}
	c := census.Compare(s.ledger.Instances(), s.claims(), vms)
	s.absence.records.Store(int64(c.Live))
	found := s.absorb(ctx, c, asked)
	s.claim(c.Claimed)
	held, problem := s.orphans.Judge(c, s.tuning.Load().Quiet, time.Now())
	s.goOn(whyHeld(held, problem))
	s.recorded.Store(!held && len(c.Orphans) == 0)
	doomed := s.orphans.Nominate(c, held || s.absence.problem.Load() != nil, s.atSize)
	s.observed.Forget(s.creates.underWay(), time.Now())
	s.reportOrphans(problem, held)
	s.absence.remind()
	s.reportMalformed()
	s.removeOrphans(ctx, doomed)
	s.confirm(ctx, found)
	return nil
}

// reportOrphans reports the problem with orphans in every sweep, and when it is resolved.
func (s *sweeper) reportOrphans(problem string, held bool) {
	if problem != "" {
		s.reports.report(&fleet.Problem{Reason: problems.ReasonOrphans, Message: problem, Lasts: true, Blocks: held})
	} else if s.asked {
		s.reports.clear(fleet.GroupKey{}, "", problems.ReasonOrphans)
	}
	s.asked = problem != ""
}

// whyHeld returns the problem if it holds the loop.
func whyHeld(held bool, problem string) string {
	if !held {
		return ""
	}
	return problem
}

// goOn holds the loop for the given reason, or lets passes run again if it is empty.
func (s *sweeper) goOn(held string) {
	lifted := held == "" && s.suspended()
	if told := *s.held.Load(); (told == "") != (held == "") {
		s.reports.tellHeld(ruleSweep, problems.ReasonOrphans, held)
	}
	if lifted {
		s.absence.restart(time.Now())
	}
	s.hold(held)
	if lifted {
		s.schedule.MarkAll()
		s.log.Info("records match the VMs again, resuming")
		s.reports.changed(fleet.GroupKey{}, "")
	}
}

// hold sets why the loop holds (empty: it does not) and ends the limit of a listing.
func (s *sweeper) hold(why string) {
	s.held.Store(&why)
	s.limit.Store(noListing)
}

// suspended reports whether no pass may run now: the loop holds, or too many records have
// vanished in the listing in progress.
func (s *sweeper) suspended() bool {
	limit := s.limit.Load()
	return *s.held.Load() != "" || (limit != noListing && s.ledger.Vanished() > int(limit))
}

// Accounted reports whether the provider's VMs have been listed in this term and their records
// read. Until then a group may have machines without a known record, because a listing of the
// store lacked it. recorded: the last sweep also found a record of each VM; the first one is at least a
// lease after the takeover, or a sweep's interval.
func (l *Loop) Accounted() (listed, recorded bool) {
	return l.sweeper.accounted.Load(), l.sweeper.recorded.Load() && !l.sweeper.suspended()
}

// liveRecords counts the records without tombstones.
func liveRecords(l Ledger) (n int) {
	for _, r := range l.Instances() {
		if r.Phase != fleet.Deleted {
			n++
		}
	}
	return n
}

// relist applies external changes of the records. Passes run meanwhile, unless so many records
// vanish that the store may be lost.
func (s *sweeper) relist(ctx context.Context) error {
	live := liveRecords(s.ledger)
	s.limit.Store(int64(census.Limit(live, live)))
	stale := s.suspended() // by the count of the previous listing, until Relist resets it
	began := time.Now()
	appeared, vanished, err := s.ledger.Relist(ctx)
	for _, id := range vanished {
		s.orphans.LoseRecord(id, began)
	}
	if err != nil {
		s.limit.Store(noListing)
		s.schedule.MarkAll()
		return problems.Because(problems.ReasonStorage, fmt.Errorf("list the records: %w", err))
	}
	s.creates.relisted(began)
	if len(appeared)+len(vanished) > 0 {
		s.log.Warn("records changed externally", slog.Int("appeared", len(appeared)), slog.Int("vanished", len(vanished)))
	}
	if stale || len(appeared)+len(vanished) > 0 {
		s.schedule.MarkAll()
	}
	return nil
}

// absorb applies the VMs of a census atomically, since a part of a list would look like the
// absence of the rest, and returns the suspects.
func (s *sweeper) absorb(ctx context.Context, c census.Census, asked time.Time) census.Suspects {
	now := time.Now()
	records, answers := make([]fleet.Instance, len(c.Present)), make([]observe.Answer, len(c.Present))
	for n, p := range c.Present {
		records[n], answers[n] = p.Record, observe.Answer{Record: p.Record, VM: p.VM, Found: true, Asked: asked}
	}
	mark(s.schedule, now, s.observed.See(now, answers...)...)
	s.writeBack.identify(ctx, records...)
	for _, p := range c.Present {
		// The VM of a pending record may be incomplete: its create is repeated, which
		// completes and returns it.
		if p.Record.Provider.ID == "" && p.Record.Phase != fleet.Pending {
			s.writeBack.adopt(ctx, p.Record, p.VM, now)
		}
	}
	underWay := s.creates.underWay()
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.Suspects(underWay, &s.leaving)
}
