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
func Next(v View) Decision {
	d := newDecision(v)
	for i := range v.Instances {
		d.one(&v.Instances[i])
	}
	d.sortByAge()
	if v.Group.Disabled == "" {
		d.chooseReplaced()
		d.scaleDown()
		d.replace()
		d.resume() // before what is new: both may wait for the same turn
		d.scaleUp()
		d.settle()
	}
	d.forget()
	return Decision{Actions: d.result(), Surge: d.used(), Starved: d.starved, Content: d.content()}
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
		d.present++
		d.dropUnmade(i)
		return
	}
	c := ConditionOf(i, d.view.Settings, d.view.Takeover, d.view.Now)
	if reason := d.doom(i, c); reason != "" {
		d.remove(i, reason)
		return
	}
	d.present++
	gone := d.giveUp(i) || d.dropAsked(i)
	d.assess(d.keep(i), c.Reason != "", gone || i.Busy)
}

// keep adds one to the members. Whether they come in order is seen here, where the ids
// are at hand: another walk over all of them would cost more than the comparisons.
func (t *tally) keep(i *Instance) *member {
	n := len(t.live)
	if n > 0 && !t.unordered {
		t.unordered = compareAge(t.live[n-1].ID, i.ID) > 0
	}
	t.live = append(t.live, member{})
	m := &t.live[n]
	m.Instance = i
	return m
}

// decision is one decision in the making.
type decision struct {
	tally
	actions []Action
	wake    time.Time
	watched bool // it is to be woken when one of those on trial has lasted
	starved bool
}

// tally is what is known of the group as a whole, and what has been decided so far.
type tally struct {
	view    View
	size    int // wanted
	leaving map[fleet.InstanceID]bool

	own     int // instances beyond the size that the group's surge allows
	owed    int // creates that wait for nothing
	onTrial int // by the group's pace

	live      []member // managed, pending or running, not doomed; oldest first
	unordered bool     // live is not in order yet
	going     int      // of live: on their way out, or busy and perhaps so
	unhealthy int      // of live
	stale     int      // of live, and not going
	records   int      // all but tombstones, on-demand ones included
	present   int      // as many as live, also in a group that is disabled
	draining  int      // managed and draining, for whatever reason
	surging   int      // of draining: for rotation or expiry
	replacing int      // of draining: they were replaced
	busy      int      // running: all that can be under way for them is their removal

	replaced       *member // one that can't wait; nil: none
	replacedReason string
	forced         *member // another, for its age

	scaled  int // left because of the size
	resumed int
	creates int
}

// member is an instance that fills a place of the group. The rules about the group as a
// whole walk over all members again and again, and those of a large group don't fit into
// the CPU's caches with their instances: so what these walks ask of each is kept here.
type member struct {
	*Instance
	running   bool // otherwise pending
	asked     bool // somebody asked that it goes
	outdated  bool // made from another definition than the group has now
	unhealthy bool // running without a sign of life for too long
	ready     bool // running, connected, heard of since takeover
	going     bool // has its action already, or is busy with one
	stale     bool // works, and is to be replaced when there is time for it
	proven    bool // ready and settled: as good as any that it could stand in for
}

func newDecision(v View) *decision {
	d := &decision{tally: tally{view: v, size: max(0, v.Group.Size), live: make([]member, 0, len(v.Instances))}}
	if v.Group.Removed {
		d.size = 0
	}
	d.own = v.Group.MaxSurge.Of(d.size)
	if len(v.Group.Leaving) > 0 && !d.held() {
		d.leaving = make(map[fleet.InstanceID]bool, len(v.Group.Leaving))
		for _, id := range v.Group.Leaving {
			d.leaving[id] = true
		}
	}
	return d
}

// note keeps the sums that rules about the whole group need.
func (t *tally) note(i *Instance) {
	if i.Phase != fleet.Deleted {
		t.records++
	}
	if i.OnDemand {
		return
	}
	t.owed += one(i.Owed && i.Phase != fleet.Pending)
	t.onTrial += one(t.tried(i))
	switch {
	case i.Phase == fleet.Draining:
		t.draining++
		if i.Drain != nil {
			t.surging += one(surging(i.Drain.Reason))
			t.replacing += one(replacement(i.Drain.Reason))
		}
	case i.Phase == fleet.Running && i.Busy:
		t.busy++
	}
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

func (t *tally) sortByAge() {
	if t.unordered {
		slices.SortFunc(t.live, func(a, b member) int { return compareAge(a.ID, b.ID) })
	}
}

// compareAge orders ids by their time, which follows the kind.
func compareAge(a, b fleet.InstanceID) int {
	const kind = 3
	if len(a) < kind || len(b) < kind {
		return strings.Compare(string(a), string(b))
	}
	if c := strings.Compare(string(a[kind:]), string(b[kind:])); c != 0 {
		return c // almost always, which spares the other comparison
	}
	return strings.Compare(string(a[:kind]), string(b[:kind]))
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
