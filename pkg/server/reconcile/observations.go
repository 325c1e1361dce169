package reconcile

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/plan"
)

// stepBackoff is for one step of one instance, which the store or the provider
// refused, and which costs little to try.
func stepBackoff() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Limit: 15 * time.Second}
}

// observations is what is known of the instances beyond their records. It is
// safe for concurrent use.
type observations struct {
	schedule   *schedule
	consistent bool      // the provider's reads always show the present
	began      time.Time // of the term

	mu        sync.Mutex
	instances map[fleet.InstanceID]*observation
	groups    map[fleet.GroupKey]*attempts // at editing the groups themselves
	absent    map[fleet.InstanceID]bool    // instances whose VM is absent
}

// observation is what is known of one instance beyond its record.
type observation struct {
	attempts
	health     plan.Health
	knownSince time.Time // when a pass first saw the record; zero: none has

	vm    plan.VM
	state provider.State // the provider's own word; empty: none yet
	why   string         // its words for why, if it has any
	asOf  time.Time      // when the question was asked that was answered last
	shown bool           // the provider has answered with the VM
	ended bool           // it showed a state from which the VM will not work again

	missedAt time.Time // when the first question was sent of those since that did not find the VM; zero: it was found
	askAt    time.Time // when that question is to be repeated; zero: no need

	unanswered bool // a list left the VM in doubt, and no answer about it has come since
	unlisted   bool // and it did not show it at all

	addresses []netip.Addr // that the provider last showed; never changed in place

	attemptedAt time.Time // this term's last create
	askedAt     time.Time // this term's last create that was not certainly refused, or when one still waited for its turn
	// recordDoubtful: the outcome of a write is not known that was made while
	// the instance was created, or to end it before it was.
	recordDoubtful bool
	retryAt        time.Time // when the create or delete is due again
	refusedFor     error     // why this term's last create was certainly refused; nil: none was, or one was accepted since
	standsIn       bool      // for one that had settled
	judged         bool      // it has settled, or came to nothing before, and counts as that
	loss           *loss     // guarded by the lock of the observations, in copies too
}

// attempts keeps the steps taken on one thing apart: one at a time, and more
// and more rarely while they fail.
type attempts struct {
	busy       bool      // a worker is on it
	quietUntil time.Time // after a failed step: as good as busy until then
	last       string    // the last step's failure, in words; empty: it was none
	lastAt     time.Time // when it failed
	failures   int       // steps that failed since the last one that did not
}

// isBusy reports whether no new step may begin now.
func (a *attempts) isBusy(now time.Time) bool { return a.busy || a.quietUntil.After(now) }

// finish ends a step, and reports whether it failed just as the last one did.
func (a *attempts) finish(err error, now time.Time) (repeated bool) {
	before := a.last
	a.busy = false
	a.note(err, now)
	if err == nil {
		a.failures, a.quietUntil = 0, time.Time{}
		return false
	}
	a.failures++
	a.quietUntil = now.Add(stepBackoff().Delay(a.failures))
	return a.last == before
}

// loss is how an instance was lost, for the account of its replacement.
type loss struct {
	sign     string
	at       time.Time // the first sign: the stream broke, the agent or the provider said so
	statusAt time.Time // when the provider answered; zero: it was not asked, or not yet
	awaited  bool      // the last pass wanted a replacement, which waits to begin
	replaced bool      // a replacement has begun
}

// The signs of a loss.
const (
	signDisconnect = "disconnect"
	signShutdown   = "shutdown"
	signNotice     = "notice"
	signProvider   = "provider"
)

func newObservations(s *schedule, consistent bool, began time.Time) *observations {
	return &observations{
		schedule: s, consistent: consistent, began: began, instances: map[fleet.InstanceID]*observation{},
		groups: map[fleet.GroupKey]*attempts{}, absent: map[fleet.InstanceID]bool{},
	}
}

// with reads or changes what is known of an instance. use calls nothing that
// has a lock.
func (o *observations) with(id fleet.InstanceID, use func(*observation)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	use(o.observation(id))
}

// observation is that of an instance. The caller holds the lock.
func (o *observations) observation(id fleet.InstanceID) *observation {
	b := o.instances[id]
	if b == nil {
		b = &observation{}
		o.instances[id] = b
	}
	return b
}

// get returns what is known of an instance; zero: nothing.
func (o *observations) get(id fleet.InstanceID) observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.instances[id]; known != nil {
		return *known
	}
	return observation{}
}

// attempts are those at an instance, or, without an id, at a group.
func (o *observations) attempts(key fleet.GroupKey, id fleet.InstanceID, use func(*attempts)) {
	if id != "" {
		o.with(id, func(b *observation) { use(&b.attempts) })
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.groups[key] == nil {
		o.groups[key] = &attempts{}
	}
	use(o.groups[key])
}

// begin reports whether a step may begin, which then has, or else when, if that
// is known.
func (o *observations) begin(key fleet.GroupKey, id fleet.InstanceID, now time.Time) (ok bool, notBefore time.Time) {
	o.attempts(key, id, func(a *attempts) {
		if ok = !a.isBusy(now); !ok && !a.busy {
			notBefore = a.quietUntil
		}
		a.busy = a.busy || ok
	})
	return ok, notBefore
}

// finish ends a step, and reports whether it failed just as the last one did.
func (o *observations) finish(key fleet.GroupKey, id fleet.InstanceID, err error, now time.Time) (repeated bool) {
	o.attempts(key, id, func(a *attempts) {
		if repeated = a.finish(err, now); id == "" && err == nil {
			delete(o.groups, key) // nothing is left to be remembered
		}
	})
	return repeated
}

// beginCreate begins a create, if a step may begin, and notes how the instance
// was lost that it replaces.
func (o *observations) beginCreate(x *launch, now time.Time) (ok bool) {
	o.with(x.record.ID, func(b *observation) {
		if ok = !b.isBusy(now); !ok {
			return
		}
		b.busy, b.attemptedAt, b.standsIn = true, now, b.standsIn || x.owed
		if lost := o.instances[x.replaces]; lost != nil && lost.loss != nil {
			lost.loss.replaced = true
			x.loss = *lost.loss
		}
	})
	return ok
}

// replace chooses the lost instances that the creates of a pass stand in for: those
// that had settled first, and of these the first lost. A tombstone is one of them only
// if its replacement waits.
func (o *observations) replace(instances []plan.Instance, creates int) (lost []*plan.Instance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n := range instances {
		i := &instances[n]
		if b := o.instances[i.ID]; b != nil && !i.OnDemand && b.awaitsReplacement(i) {
			lost = append(lost, i)
		}
	}
	slices.SortStableFunc(lost, func(a, b *plan.Instance) int {
		if a.Owed != b.Owed {
			if a.Owed {
				return -1
			}
			return 1
		}
		return o.instances[a.ID].loss.at.Compare(o.instances[b.ID].loss.at)
	})
	for n, i := range lost {
		o.instances[i.ID].loss.awaited = n < creates
	}
	return lost[:min(creates, len(lost))]
}

// doubtful reports whether the agent is missing or leaving, or the VM was not found
// or is in doubt, so that the provider's word is asked for.
func (b *observation) doubtful() bool {
	return !b.health.Connected || !b.health.ShuttingDownAt.IsZero() || b.unanswered || b.absent()
}

// lose remembers the first sign of a loss. The end of an instance that leaves
// anyway is none.
func (b *observation) lose(sign string, at time.Time, r fleet.Instance) {
	if b.loss == nil && r.Phase.Active() {
		b.loss = &loss{sign: sign, at: at}
	}
}

// lost reports whether the instance is lost for certain, its VM being shown so, and
// its replacement is still to begin.
func (b *observation) lost(shown plan.VM) bool {
	return b.loss != nil && !b.loss.replaced &&
		(dead(shown) || b.health.Notice != nil || !b.health.ShuttingDownAt.IsZero())
}

// forgetAttempts is when attempts at editing a group are given up that nobody
// repeats: well above the pause between two of them.
const forgetAttempts = time.Minute

// forget drops what is known of instances that are no more, but for those that
// are being created, and of edits of groups that nobody asks for any more.
func (o *observations) forget(ledger Ledger, launching map[fleet.InstanceID]bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.groups, func(_ fleet.GroupKey, a *attempts) bool { return !a.busy && now.Sub(a.quietUntil) > forgetAttempts })
	for id, b := range o.instances {
		if _, ok := ledger.Get(id); ok {
			continue
		}
		b.knownSince = time.Time{} // should it come back, it is as new
		if !b.busy && !b.health.Connected && !launching[id] {
			delete(o.instances, id)
			delete(o.absent, id)
		}
	}
}
