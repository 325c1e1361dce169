package reconcile

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/schedule"
)

// absenceCheck holds the loop while many of the shard's VMs are not found although agents on
// them are connected.
//
// A provider with wrong credentials, region or engine finds no VMs, and replacing them all
// would double the shard. So the agents' streams are the second source: as long as an agent
// of an absent VM is connected, nothing is created or deleted and a problem is reported. When
// none is connected, the loss is real.
type absenceCheck struct {
	schedule *schedule.Schedule
	observed *observe.State
	reports  *reporter
	workers  *sync.WaitGroup
	takeover *atomic.Pointer[time.Time]
	log      *slog.Logger

	problem atomic.Pointer[fleet.Problem] // nil: none
	records atomic.Int64                  // at the last census, without tombstones

	// Used by the deciding goroutine only.
	last    census.Verdict // of the last check
	told    census.Roll    // in the problem; zero: there is none
	spokeAt time.Time      // when the agent of an absent VM was last connected
}

func newAbsenceCheck(l *Loop) *absenceCheck {
	return &absenceCheck{
		schedule: l.schedule, observed: l.observed, reports: l.reports, workers: &l.workers, takeover: &l.takeover,
		log: l.log,
	}
}

// restart counts the silence of agents from now on, since they could not connect before.
func (w *absenceCheck) restart(now time.Time) { w.takeover.Store(&now) }

// check reports whether no pass may run now, and when to check again without an event;
// zero: never. The verdict Awaited holds the whole loop only if a problem was reported; else
// it only defers decisions about absent instances. If the verdict changes, every group is
// enqueued.
func (w *absenceCheck) check(now time.Time) (held bool, until time.Time) {
	if w.last == census.Refuted { // connected until now
		w.spokeAt = now
	}
	silentFrom := *w.takeover.Load()
	if w.spokeAt.After(silentFrom) {
		silentFrom = w.spokeAt
	}
	r, connected := w.observed.Roll(int(w.records.Load()), now.Before(silentFrom.Add(census.ComeBack)))
	v, until := census.Weigh(r, silentFrom, now)
	switch {
	case v == census.Refuted:
		w.reportAbsence(r, connected)
	case v == census.Believed && w.last != census.Believed:
		w.problem.Store(nil)
		if w.told != (census.Roll{}) {
			w.reports.tellHeld(ruleCensus, problems.ReasonAbsent, "")
		}
		w.told = census.Roll{}
		w.log.Info("absence check passed, resuming")
		w.workers.Go(func() {
			w.reports.clear(fleet.GroupKey{}, "", problems.ReasonAbsent)
			w.reports.changed(fleet.GroupKey{}, "")
		})
	}
	if v != w.last {
		w.schedule.MarkAll()
	}
	w.last = v
	return v == census.Refuted || v == census.Blind || v == census.Awaited && w.problem.Load() != nil, until
}

// reportAbsence reports the problem once per change; every sweep repeats it.
func (w *absenceCheck) reportAbsence(r census.Roll, connected []fleet.InstanceID) {
	if w.told == r {
		return
	}
	first := w.told == census.Roll{}
	if first {
		w.reports.tellHeld(ruleCensus, problems.ReasonAbsent, r.Text(connected))
	}
	w.told = r
	w.problem.Store(&fleet.Problem{Reason: problems.ReasonAbsent, Lasts: true, Blocks: true, Message: r.Text(connected)})
	if first {
		w.workers.Go(w.remind)
	}
}

// remind reports the problem again, if there is one.
func (w *absenceCheck) remind() {
	if p := w.problem.Load(); p != nil {
		told := *p
		w.reports.report(&told)
	}
}
