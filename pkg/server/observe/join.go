package observe

import (
	"cmp"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Moment is what else decides how instances are joined.
type Moment struct {
	Now       time.Time
	Settings  plan.Settings
	Awaited   bool // the absence check is undecided
	Throttled bool // the provider throttles creates
}

// Joined are a group's instances as a decision sees them.
type Joined struct {
	Instances []plan.Instance    // sorted by ID
	Again     time.Time          // when the next failed step is retried; zero: none is
	Settles   time.Time          // when the next instance settles, if it lives; zero: none does
	Lost      []fleet.InstanceID // which may be lost, and have no replacement that has begun
}

// Join returns a group's records, and the creates that have begun and are not recorded yet,
// with what is known of them. While the absence check is undecided, instances whose VM is absent
// are shown as alive and busy, so that nothing is decided about them.
//
// The records are read under the lock that guards which instances are busy. So if a worker ends
// meanwhile, its instance is still busy here, or its record shows the result.
//
// The result reuses room.
func (s *State) Join(key fleet.GroupKey, begun []fleet.Instance, at Moment, room []plan.Instance) (j Joined) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = s.records.Members(key, s.members[:0])
	j.Instances = slices.Grow(room, len(s.members)+len(begun))
	unrecorded := make(map[fleet.InstanceID]fleet.Instance, len(begun))
	for _, x := range begun {
		unrecorded[x.ID] = x
	}
	for _, r := range s.members {
		i := s.instance(r.ID)
		j.add(i, r, at)
		if i.unreplaced() && !r.OnDemand {
			j.Lost = append(j.Lost, r.ID)
		}
		i.judge(r, at.Settings, at.Now)
		delete(unrecorded, r.ID)
	}
	clear(s.members) // so that the buffer keeps no record
	for _, x := range unrecorded {
		j.Instances = append(j.Instances, plan.Instance{Instance: &x, Busy: true})
	}
	if !sorted(j.Instances) {
		slices.SortFunc(j.Instances, func(a, b plan.Instance) int { return cmp.Compare(a.ID, b.ID) })
	}
	return j
}

// sorted is slices.IsSortedFunc without a copy of each instance.
func sorted(instances []plan.Instance) bool {
	for n := 1; n < len(instances); n++ {
		if instances[n-1].ID > instances[n].ID {
			return false
		}
	}
	return true
}

// find returns the instance with the ID; nil if there is none.
func (j *Joined) find(id fleet.InstanceID) *plan.Instance {
	return (&plan.View{Instances: j.Instances}).Find(id)
}

// add adds one record with what is known of its instance.
func (j *Joined) add(i *instance, r *fleet.Instance, at Moment) {
	if i.knownSince.IsZero() {
		i.knownSince = at.Now
	}
	if at.Throttled && r.Phase == fleet.Pending && r.Provider.ID == "" && i.vm != plan.VMAlive {
		i.askedAt = at.Now // defers the registration timeout
	}
	x := i.join(r, at.Now)
	x.Immediate = i.immediate(&x, at.Settings, at.Now) || i.standsIn && r.Phase == fleet.Pending && r.Provider.ID == ""
	if x.Busy && !i.steps.busy {
		j.Again = plan.Sooner(j.Again, i.steps.quietUntil)
	}
	if at.Awaited && i.absent() {
		x.VM, x.Busy = plan.VMAlive, true
	}
	if settles := plan.SettlesAt(r, at.Settings); r.Phase == fleet.Running && settles.After(at.Now) {
		j.Settles = plan.Sooner(j.Settles, settles)
	}
	j.Instances = append(j.Instances, x)
}

// join returns the record with what is known of its instance.
func (i *instance) join(r *fleet.Instance, now time.Time) plan.Instance {
	return plan.Instance{
		Instance: r, KnownSince: i.knownSince, VM: i.vm, Health: i.health,
		AskedAt: i.askedAt, RetryAt: i.retryAt, Busy: i.steps.isBusy(now),
	}
}
