package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Next decides what happens to the group's instances now. The actions are
// independent of each other but for their order: creates come first, so that a
// replacement never waits for a removal, and a Wake comes last. At most one
// action names an instance, and none a busy one.
//
// It reads in two halves: first every instance by itself, then the group as a
// whole. Time is linear in the number of instances, which are best given in the
// order of their ids.
func Next(v View) []Action {
	d := newDecision(v)
	for i := range v.Instances {
		d.one(&v.Instances[i])
	}
	d.sortByAge()
	if v.Group.Disabled == "" {
		d.chooseReplaced()
		d.scaleDown()
		d.replace()
		d.scaleUp()
		d.resume()
		d.settle()
	}
	d.forget()
	return d.result()
}

// one decides what can be decided of an instance without looking at the others,
// and keeps those that fill a place of the group for the rules that do look.
func (d *decision) one(i *Instance) {
	d.note(i)
	switch i.Phase {
	case fleet.Deleted:
		d.prune(i)
	case fleet.Deleting:
		d.finishDelete(i)
	case fleet.Draining:
		d.finishDrain(i)
	case fleet.Pending, fleet.Running:
		d.active(i)
	}
}

// active decides about a pending or running instance. A doomed one is no longer
// counted, so that it is replaced in the same decision; every other one fills a
// place until its record says that it leaves.
func (d *decision) active(i *Instance) {
	if i.OnDemand {
		d.onDemand(i)
		return
	}
	if d.view.Group.Disabled != "" {
		return
	}
	c := ConditionOf(i, d.view.Settings, d.view.Takeover, d.view.Now)
	if reason := d.doom(i, c); reason != "" {
		d.remove(i, reason)
		return
	}
	gone := d.giveUp(i) || d.dropAsked(i)
	d.live = append(d.live, d.assess(i, c, gone || i.Busy))
}

// decision is one decision in the making.
type decision struct {
	view    View
	size    int // wanted
	leaving map[fleet.InstanceID]bool

	live      []member // managed, pending or running, not doomed; oldest first
	going     int      // of live: on their way out, or busy and perhaps so
	unhealthy int      // of live
	records   int      // all but tombstones, on-demand ones included
	draining  int      // managed and draining, for whatever reason
	replacing bool     // one that was replaced is still leaving

	replaced       *member // the one that is replaced next; nil: none
	replacedReason string

	actions []Action
	wake    time.Time
}

// member is an instance that fills a place of the group.
type member struct {
	*Instance
	unhealthy bool // running without a sign of life for too long
	ready     bool // running, connected, heard of since takeover
	going     bool // has its action already, or is busy with one
}

func newDecision(v View) *decision {
	d := &decision{view: v, size: max(0, v.Group.Size), live: make([]member, 0, len(v.Instances))}
	if v.Group.Removed {
		d.size = 0
	}
	if len(v.Group.Leaving) > 0 {
		d.leaving = make(map[fleet.InstanceID]bool, len(v.Group.Leaving))
		for _, id := range v.Group.Leaving {
			d.leaving[id] = true
		}
	}
	return d
}

// note keeps the sums that rules about the whole group need.
func (d *decision) note(i *Instance) {
	if i.Phase != fleet.Deleted {
		d.records++
	}
	if i.OnDemand {
		return
	}
	if i.Phase == fleet.Draining {
		d.draining++
		d.replacing = d.replacing || (i.Drain != nil && replacement(i.Drain.Reason))
	}
	if i.Phase == fleet.Running && i.Busy {
		d.replacing = true // all that can be under way for a running one is its removal
	}
}

// target is how many instances the group has now: its size, and one more while
// one waits to be replaced.
func (d *decision) target() int {
	if d.replaced != nil {
		return d.size + 1
	}
	return d.size
}

func (d *decision) act(a Action) { d.actions = append(d.actions, a) }

// at asks for another decision at t, if that is still to come.
func (d *decision) at(t time.Time) {
	if t.After(d.view.Now) && (d.wake.IsZero() || t.Before(d.wake)) {
		d.wake = t
	}
}

// due reports whether t has come, and asks to be woken when it has not.
func (d *decision) due(t time.Time) bool {
	d.at(t)
	return !t.After(d.view.Now)
}

func (d *decision) sortByAge() {
	byAge := func(a, b member) int { return compareAge(a.ID, b.ID) }
	if !slices.IsSortedFunc(d.live, byAge) {
		slices.SortFunc(d.live, byAge)
	}
}

// compareAge orders ids by their time, which follows the kind.
func compareAge(a, b fleet.InstanceID) int {
	const kind = 3
	if len(a) < kind || len(b) < kind {
		return strings.Compare(string(a), string(b))
	}
	return cmp.Or(strings.Compare(string(a[kind:]), string(b[kind:])), strings.Compare(string(a[:kind]), string(b[:kind])))
}

func (d *decision) result() []Action {
	order := [...]Kind{Create, Resume, Drain, Delete, Tombstone, Settle, Prune, Forget}
	slices.SortStableFunc(d.actions, func(a, b Action) int {
		return cmp.Or(slices.Index(order[:], a.Kind)-slices.Index(order[:], b.Kind), compareAge(a.ID, b.ID))
	})
	if !d.wake.IsZero() {
		d.act(Action{Kind: Wake, At: d.wake})
	}
	return d.actions
}
