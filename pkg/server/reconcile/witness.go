package reconcile

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// witness holds the loop while a large part of the shard's VMs is not found although
// their agents are there.
//
// A provider that was opened with other credentials, for another region or on
// another engine, finds none of them, and to replace what lives elsewhere would be a
// disaster. So the agents are the second witness: as long as one of the absent has
// an open stream nothing is created or deleted, and a person is asked. When none of
// them has, the loss is real.
type witness struct {
	*term
	problem atomic.Pointer[fleet.Problem] // what a person is asked; nil: nothing
	records atomic.Int64                  // how many there were at the last census, tombstones aside

	// Of the deciding goroutine alone.
	last    verdict   // of the last look
	told    roll      // by the problem; zero: there is none
	spokeAt time.Time // the last moment at which one of the absent was connected
}

// look judges the absence at this moment. It reports whether no pass may run now, and
// when to look again if nothing happens; zero: never. What is awaited concerns the
// absent only, unless they are all, or agents spoke for them before. A change of the verdict has every
// group decided anew.
func (w *witness) look(now time.Time) (held bool, until time.Time) {
	if w.last == refuted { // up to now
		w.spokeAt = now
	}
	silentFrom := *w.takeover.Load()
	if w.spokeAt.After(silentFrom) {
		silentFrom = w.spokeAt
	}
	r, connected := w.call(now.Before(silentFrom.Add(comeBack)))
	v, until := weigh(r, silentFrom, now)
	switch {
	case v == refuted:
		w.ask(r, connected)
	case v == believed && w.last != believed:
		w.problem.Store(nil)
		w.told = roll{}
		w.log.Info("the absence of VMs is accounted for, going on")
		w.workers.Go(func() {
			w.solved(fleet.GroupKey{}, ReasonAbsent)
			w.cfg.Changed(fleet.GroupKey{}, "")
		})
	}
	if v != w.last {
		w.markAll()
	}
	w.last = v
	return v == refuted || v == blind || v == awaited && w.problem.Load() != nil, until
}

// call calls the roll, and returns those of the absent whose agents are connected.
// When all are silent, and that is not awaited to change, it need not be called.
func (w *witness) call(awaited bool) (r roll, connected []fleet.InstanceID) {
	absent, speak := w.observed.missing()
	if len(absent) <= orphanLimit(0) || !speak && !awaited {
		return roll{}, nil
	}
	r.records = int(w.records.Load())
	for id, isConnected := range absent {
		if i, ok := w.cfg.Ledger.Get(id); !ok || !i.Phase.Active() && i.Phase != fleet.Draining {
			continue
		}
		r.absent++
		if isConnected {
			connected = append(connected, id)
		}
	}
	r.connected = len(connected)
	slices.Sort(connected)
	if r.exceeds() { // by a census that may be old
		r.records, r.found = w.observed.found(w.cfg.Ledger)
	}
	return r, connected
}

// missing returns the instances whose VM is absent, each with whether its agent is
// connected, and whether that is so of any.
func (o *observations) missing() (absent map[fleet.InstanceID]bool, any bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	absent = make(map[fleet.InstanceID]bool, len(o.absent))
	for id := range o.absent {
		absent[id] = o.instances[id].health.Connected
		any = any || absent[id]
	}
	return absent, any
}

// found counts the records that are no tombstones, and those of them that are to be
// there and whose VM the provider shows.
func (o *observations) found(l Ledger) (records, found int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range l.Instances() {
		if r.Phase != fleet.Deleted {
			records++
		}
		b := o.instances[r.ID]
		if b != nil && b.vm == plan.VMAlive && !b.absent() && (r.Phase.Active() || r.Phase == fleet.Draining) {
			found++
		}
	}
	return records, found
}

// ask asks a person, once for each state of affairs; every sweep repeats it.
func (w *witness) ask(r roll, connected []fleet.InstanceID) {
	if w.told == r {
		return
	}
	first := w.told == roll{}
	w.told = r
	names := nameSome(connected, func(id fleet.InstanceID) string { return string(id) })
	w.problem.Store(&fleet.Problem{Reason: ReasonAbsent, Message: fmt.Sprintf(
		"The provider does not find the VMs of %d of this shard's %d instances, more than the %d that may be an accident, and yet the agents "+
			"of %d of them are connected: %s. So it looks at another world than the one they run in. Nothing is created or deleted until "+
			"this is settled. Check that the provider has the right credentials, account, region and endpoint (docker: engine, process: "+
			"dir). This ends by itself when the provider finds them again, or when none of their agents has been connected for %s.",
		r.absent, r.records, orphanLimit(r.records), r.connected, names, comeBack)})
	if first {
		w.workers.Go(w.remind)
	}
}

// remind reports what a person is asked.
func (w *witness) remind() {
	if p := w.problem.Load(); p != nil {
		told := *p
		w.report(&told)
	}
}
