package reconcile

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// absence holds the loop while a large part of the shard's VMs is not found although
// their agents are there.
//
// A provider that was opened with other credentials, for another region or on
// another engine, finds none of them, and to replace what lives elsewhere would be a
// disaster. So the agents are the second witness: as long as one of the absent has
// an open stream nothing is created or deleted, and a person is asked. When none of
// them has, the loss is real.
type absence struct {
	*term
	problem atomic.Pointer[fleet.Problem] // what a person is asked; nil: nothing

	// Of the deciding goroutine alone.
	last    verdict   // of the last look
	told    roll      // by the problem
	spokeAt time.Time // the last moment at which one of the absent was connected
}

// look judges the absence at this moment. It reports whether no pass may run now, and
// until when at most if nothing happens; zero: without end.
func (a *absence) look(now time.Time) (held bool, until time.Time) {
	if a.last == refuted { // up to now
		a.spokeAt = now
	}
	silentFrom := *a.takeover.Load()
	if a.spokeAt.After(silentFrom) {
		silentFrom = a.spokeAt
	}
	r, connected := a.call(now.Before(silentFrom.Add(comeBack)))
	v, until := weigh(r, silentFrom, now)
	switch {
	case v == refuted:
		a.ask(r, connected)
	case v == believed && a.last != believed:
		a.problem.Store(nil)
		a.told = roll{}
		a.log.Info("the absence of VMs is accounted for, going on")
		a.markAll()
		a.cfg.Changed(fleet.GroupKey{}, "")
	}
	a.last = v
	return v != believed, until
}

// call calls the roll, and returns those of the absent whose agents are connected.
// When all are silent, and nobody waits for them to speak, it need not be called.
func (a *absence) call(awaited bool) (r roll, connected []fleet.InstanceID) {
	absent, speak := a.observed.missing()
	if len(absent) <= orphanLimit(0) || !speak && !awaited {
		return roll{}, nil
	}
	for id, isConnected := range absent {
		if i, ok := a.cfg.Ledger.Get(id); !ok || !i.Phase.Active() && i.Phase != fleet.Draining {
			continue
		}
		r.absent++
		if isConnected {
			connected = append(connected, id)
		}
	}
	for _, i := range a.cfg.Ledger.Instances() {
		if i.Phase != fleet.Deleted {
			r.records++
		}
	}
	r.connected = len(connected)
	slices.Sort(connected)
	return r, connected
}

// missing returns the instances whose VM the last Get did not find, each with whether
// its agent is connected, and whether that is so of any.
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

// ask asks a person, once for each state of affairs; every sweep repeats it.
func (a *absence) ask(r roll, connected []fleet.InstanceID) {
	if a.told == r {
		return
	}
	first := a.told == roll{}
	a.told = r
	a.problem.Store(&fleet.Problem{Reason: ReasonAbsent, Message: fmt.Sprintf(
		"The provider does not find the VMs of %d of this shard's %d instances, more than the %d that may be an accident, and yet the agents "+
			"of %d of them are connected: %s. So it looks at another world than the one they run in. Nothing is created or deleted "+
			"until this is settled. Check that the provider has the right credentials, account, region and endpoint (docker: engine, process: dir). "+
			"This ends by itself when the provider finds them again, or when none of their agents has been connected for %s.",
		r.absent, r.records, orphanLimit(r.records), r.connected, nameSome(connected, func(id fleet.InstanceID) string { return string(id) }), comeBack)})
	if first {
		a.remind()
	}
}

// remind reports what a person is asked.
func (a *absence) remind() {
	if p := a.problem.Load(); p != nil {
		told := *p
		a.report(&told)
	}
}
