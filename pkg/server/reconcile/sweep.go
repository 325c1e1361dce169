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
)

// relistPage is how many records one request lists. A sweep spends at most one
// such request on average, so that at the usual interval of two minutes an idle
// shard stays at 30 listings an hour, however many records it has.
const relistPage = 1000

// sweeper compares what the provider has with the ledger, both ways. One
// goroutine sweeps; the rest is safe for concurrent use.
type sweeper struct {
	*term
	creates creates
	again   again
	witness *witness
	retuned chan struct{}          // holds at most one: the interval may have changed
	held    atomic.Pointer[string] // why nothing is done; empty: all is well
	limit   atomic.Int64           // while the store is listed: how many records may vanish; 0: it is not

	accounted atomic.Bool // the record of each VM that was listed has been looked for by its key

	// Of the sweeping goroutine alone.
	orphans  orphans
	reported map[string]bool // by key: malformed objects that were reported
	asked    bool            // a person was asked what to make of the orphans

	mu          sync.Mutex
	removing    map[string]bool                     // by provider id: the deletion of an orphan is under way
	claimed     map[fleet.InstanceID]fleet.GroupKey // VMs that only a malformed object speaks of
	nextLeaving fleet.InstanceID                    // where the next sweep goes on asking
}

// creates is what a sweep has to know of the creates under way.
type creates interface {
	underWay() map[fleet.InstanceID]bool
	// relisted tells that a listing of the store has ended, and when it began.
	relisted(began time.Time)
}

// again has questions repeated at a moment to come.
type again interface {
	askAt(id fleet.InstanceID, at time.Time)
}

func newSweeper(t *term, c creates, a again, witness *witness) *sweeper {
	s := &sweeper{
		term: t, creates: c, again: a, witness: witness, retuned: make(chan struct{}, 1),
		orphans: newOrphans(), removing: map[string]bool{},
	}
	s.hold("")
	return s
}

// begin takes over the provider's first list. It returns how many VMs have no
// record, and how many are asked about.
func (s *sweeper) begin(ctx context.Context, records []fleet.Instance, vms []provider.VM, asked time.Time) (orphans, suspects int) {
	c := compare(records, s.claims(), vms)
	s.witness.records.Store(int64(c.live))
	found := s.absorb(ctx, c, asked)
	s.claim(c.claimed)
	s.orphans.lose(c.orphans, time.Now())
	held, problem := s.orphans.judge(c, time.Now())
	s.hold(held)
	s.ask(problem)
	s.reportMalformed()
	if len(found.unlisted) > orphanLimit(c.live) { // no decision before it is known what to make of that
		s.confirm(ctx, found)
	} else {
		s.workers.Go(func() { s.confirm(ctx, found) })
	}
	return len(c.orphans), len(found.refs)
}

// errNoList is the failure of a sweep for want of the provider's list.
var errNoList = errors.New("list the VMs")

// run sweeps until ctx ends. A sweep without a list is repeated soon: until one
// comes nothing shows which VMs are gone.
func (s *sweeper) run(ctx context.Context) {
	most, failures := s.cfg.FirstSweep, 0
	for n := 0; s.await(ctx, time.Now(), most); {
		if err := s.sweep(ctx, n); err != nil {
			s.fail(ctx, fmt.Errorf("sweep: %w", err), fleet.GroupKey{}, "")
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

// longest is no bound at all.
const longest = time.Duration(math.MaxInt64)

// await waits for the sweep's interval, as it is by then, since the last one
// ended, and for most at most. It reports false when ctx ended first.
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

// sweep compares the provider with the ledger: the provider's list first, the
// store's second, so that an instance that is created in between can't look
// like a VM without a record.
func (s *sweeper) sweep(ctx context.Context, n int) error {
	asked := time.Now()
	vms, err := s.cloud.list(ctx)
	if err != nil {
		return because(ReasonProvider, fmt.Errorf("%w: %w", errNoList, err))
	}
	if pages := 1 + len(s.cfg.Ledger.Instances())/relistPage; n%pages == 0 {
		if err := s.relist(ctx); err != nil {
			return err
		}
	}
	if err := s.recall(ctx, vms); err != nil {
		return err
	}
	c := compare(s.cfg.Ledger.Instances(), s.claims(), vms)
	s.witness.records.Store(int64(c.live))
	found := s.absorb(ctx, c, asked)
	s.claim(c.claimed)
	held, problem := s.orphans.judge(c, time.Now())
	s.goOn(held)
	doomed := s.orphans.nominate(c, held != "" || s.witness.problem.Load() != nil, s.atSize)
	s.observed.forget(s.cfg.Ledger, s.creates.underWay(), time.Now())
	s.ask(problem)
	s.witness.remind()
	s.reportMalformed()
	s.removeOrphans(ctx, doomed)
	s.confirm(ctx, found)
	return nil
}

// ask asks a person what to make of the orphans, again in every sweep, and tells when
// that is settled.
func (s *sweeper) ask(problem *fleet.Problem) {
	s.report(problem)
	if s.asked && problem == nil {
		s.solved(fleet.GroupKey{}, ReasonOrphans)
	}
	s.asked = problem != nil
}

// goOn lets passes run again, unless they are held.
func (s *sweeper) goOn(held string) {
	lifted := held == "" && s.suspended()
	if lifted { // agents could not make themselves heard, so their silence counts from before the first pass
		now := time.Now()
		s.takeover.Store(&now)
	}
	s.hold(held)
	if lifted {
		s.markAll()
		s.log.Info("the records account for the VMs again, going on")
		s.cfg.Changed(fleet.GroupKey{}, "")
	}
}

// hold says why nothing is done from now on, now that no listing is under way;
// empty: all is well.
func (s *sweeper) hold(why string) {
	s.held.Store(&why)
	s.limit.Store(0)
}

// suspended reports whether no pass may run now: the loop holds, or a listing
// of the store under way has taken away too many records.
func (s *sweeper) suspended() bool {
	limit := int(s.limit.Load())
	return *s.held.Load() != "" || (limit > 0 && s.cfg.Ledger.Vanished() > limit)
}

// Held is why the loop does nothing; zero while it acts.
func (l *Loop) Held() fleet.Problem {
	if held := *l.sweeper.held.Load(); held != "" {
		return fleet.Problem{Reason: ReasonOrphans, Message: held}
	}
	if p := l.witness.problem.Load(); p != nil {
		return *p
	}
	return fleet.Problem{}
}

// Accounted reports whether the provider has listed its VMs in this term, and the record
// of each was read. Until then a group may have machines of which no record is known,
// because a listing of the store lacked it.
func (l *Loop) Accounted() bool { return l.sweeper.accounted.Load() }

// liveRecords counts the records that are no tombstones.
func liveRecords(l Ledger) (n int) {
	for _, r := range l.Instances() {
		if r.Phase != fleet.Deleted {
			n++
		}
	}
	return n
}

// relist takes over what other hands did to the records. Passes go on
// meanwhile, unless so many records vanish that the store must be suspected.
func (s *sweeper) relist(ctx context.Context) error {
	s.limit.Store(int64(orphanLimit(liveRecords(s.cfg.Ledger))))
	stale := s.suspended() // by the count of the listing before, until the ledger begins anew
	began := time.Now()
	appeared, vanished, err := s.cfg.Ledger.Relist(ctx)
	for _, id := range vanished {
		s.orphans.lost[string(id)] = began
	}
	if err != nil {
		s.limit.Store(0)
		s.markAll()
		return because(ReasonStorage, fmt.Errorf("list the records: %w", err))
	}
	s.creates.relisted(began)
	if len(appeared)+len(vanished) > 0 {
		s.log.Warn("records changed by another hand", slog.Int("appeared", len(appeared)), slog.Int("vanished", len(vanished)))
	}
	if stale || len(appeared)+len(vanished) > 0 {
		s.markAll()
	}
	return nil
}

// absorb takes over what a census saw, all of it as one, and returns what it makes
// suspect: a part of what a list shows looks like the absence of the rest.
func (s *sweeper) absorb(ctx context.Context, c census, asked time.Time) suspects {
	now := time.Now()
	records, answers := make([]fleet.Instance, len(c.present)), make([]answer, len(c.present))
	for n, p := range c.present {
		records[n], answers[n] = p.record, answer{id: p.record.ID, vm: p.vm, found: true, asked: asked}
	}
	s.observed.seeAll(records, answers, now)
	for _, p := range c.present {
		// The VM of a pending record may be half made: its create is repeated,
		// which completes it and answers with it.
		if p.record.Provider.ID == "" && p.record.Phase != fleet.Pending {
			// It registered although its create's answer was never written down. Each
			// sweep tries, and says when that fails.
			key, id := p.record.GroupKey(), p.record.ID
			s.work(ctx, key, id, now, func() error {
				s.fail(ctx, s.records.adopt(ctx, id, p.vm), key, id)
				return nil
			})
		}
	}
	return s.suspect(c)
}
