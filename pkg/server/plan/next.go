package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Next decides what happens to the group's instances now. The actions are
// independent of each other except for their order: creates come first, so that a
// replacement never waits for a removal, and a Wake comes last. At most one
// action names an instance, and none a busy one.
//
// It first decides about each instance alone, then about the group as a whole.
// It is O(n) if Instances is sorted by ID.
func Next(v View) Decision { return new(Planner).Next(v) }

// Planner makes one decision after the other, and reuses its memory. It is not safe for concurrent use.
type Planner struct{ room []member }

// Next is the function Next.
func (p *Planner) Next(v View) Decision {
	d := newDecision(v, p.room[:0])
	defer func() {
		p.room = d.live
		clear(p.room) // it keeps no instance
	}()
	for i := range v.Instances {
		d.one(&v.Instances[i])
	}
	d.sortByAge()
	if v.Group.Disabled == "" {
		d.chooseReplaced()
		d.scaleDown()
		d.replace()
		d.resume() // before scaleUp: both draw from the same limit
		d.scaleUp()
		d.clearLeaving()
		forgetAbort(d)
	}
	d.forget()
	return Decision{Actions: d.result(), Surge: d.used(), Starved: d.starved, Converged: d.converged(), Rotation: rotation(&d.tally)}
}

// one decides about an instance as far as that does not depend on others, and adds it to the
// members for the rules about the whole group.
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

// active decides about a pending or running instance. A doomed one is no longer counted, so
// it is replaced in the same decision; every other one counts until its record says that it
// leaves.
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
	gone := d.failPending(i) || d.dropAsked(i)
	d.assess(d.addMember(i), c.Reason != "", gone || i.Busy)
}

// addMember adds an instance to the members and notes whether they are still sorted, which is
// cheaper here than in a separate pass.
func (t *tally) addMember(i *Instance) *member {
	n := len(t.live)
	if n > 0 && !t.unordered {
		t.unordered = compareAge(t.live[n-1].ID, i.ID) > 0
	}
	t.live = append(t.live, member{})
	m := &t.live[n]
	m.Instance = i
	return m
}

// decision is the state of one call of Next.
type decision struct {
	tally
	actions []Action
	wake    time.Time
	watched bool // a wake-up for the end of a probation is requested
	starved bool
}

// tally holds the counts of the whole group and what has been decided so far.
type tally struct {
	view    View
	size    int // desired
	leaving map[fleet.InstanceID]bool

	own         int // instances beyond the size that the group's surge allows
	immediate   int // lost instances whose replacements are immediate
	inProbation int // by the group's pace

	live      []member // managed, pending or running, not doomed; oldest first
	unordered bool     // live is not sorted yet
	going     int      // of live: leaving, or busy and possibly leaving
	unhealthy int      // of live
	bare      int      // of live
	stale     int      // of live, and not going
	obsolete  int      // of live: stale, or urgently replaced instead
	records   int      // all but tombstones, on-demand ones included
	present   int      // like len(live), but also counted if the group is disabled
	draining  int      // managed and draining, for any reason
	surging   int      // of draining: for rotation or expiry
	replacing int      // of draining: replaced
	busy      int      // running and busy, so being removed

	replaced       *member // urgently replaced; nil: none
	replacedReason string
	forced         *member // another one, replaced for its forced age

	scaled  int // removed by scaleDown
	resumed int
	creates int

	early int // tombstones of instances that ended early, and not looked at yet
}

// member is an instance that counts towards the group's size. It caches what the rules about
// the whole group need, because they iterate over all members repeatedly and the instances of
// a large group don't fit into the CPU's caches.
type member struct {
	*Instance
	running   bool // otherwise pending
	asked     bool // its removal was requested
	outdated  bool // built from another definition than the group has now
	unhealthy bool // running, but silent for too long
	bare      bool // running, and known to lack the files that the group requires
	ready     bool // running, connected, reported since takeover, and not bare
	going     bool // has an action already, or is busy
	stale     bool // works, and is to be replaced within the surge
	obsolete  bool // outdated or too old: stale, or urgently replaced instead
	proven    bool // ready and settled
}

func newDecision(v View, room []member) *decision {
	d := &decision{tally: tally{view: v, size: max(0, v.Group.Size), live: slices.Grow(room, len(v.Instances))}}
	if v.Group.Removed {
		d.size = 0
	}
	d.own = v.Group.MaxSurge.Of(d.size)
	d.keepEarly()
	if len(v.Group.Leaving) > 0 && !d.held() {
		d.leaving = make(map[fleet.InstanceID]bool, len(v.Group.Leaving))
		for _, id := range v.Group.Leaving {
			d.leaving[id] = true
		}
	}
	return d
}

// note counts an instance for the rules about the whole group.
func (t *tally) note(i *Instance) {
	if i.Phase != fleet.Deleted {
		t.records++
	}
	if i.OnDemand {
		return
	}
	t.immediate += one(i.Immediate && i.Phase != fleet.Pending)
	t.inProbation += one(t.onProbation(i))
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

// at requests another decision at t, if t is in the future.
func (d *decision) at(t time.Time) {
	if t.After(d.view.Now) && (d.wake.IsZero() || t.Before(d.wake)) {
		d.wake = t
	}
}

// due reports whether t has come, and requests a wake-up at t otherwise.
func (d *decision) due(t time.Time) bool {
	d.at(t)
	return !t.After(d.view.Now)
}

func (t *tally) sortByAge() {
	if t.unordered {
		slices.SortFunc(t.live, func(a, b member) int { return compareAge(a.ID, b.ID) })
	}
}

// compareAge orders ids by time, which follows the kind in an id.
func compareAge(a, b fleet.InstanceID) int {
	const kind = 3
	if len(a) < kind || len(b) < kind {
		return strings.Compare(string(a), string(b))
	}
	if c := strings.Compare(string(a[kind:]), string(b[kind:])); c != 0 {
		return c // the common case
	}
	return strings.Compare(string(a[:kind]), string(b[:kind]))
}

func (d *decision) result() []Action {
	order := [...]Kind{Create, Resume, Drain, Delete, Tombstone, ClearLeaving, ForgetAbort, Prune, Forget}
	slices.SortStableFunc(d.actions, func(a, b Action) int {
		return cmp.Or(slices.Index(order[:], a.Kind)-slices.Index(order[:], b.Kind), compareAge(a.ID, b.ID))
	})
	if !d.wake.IsZero() {
		d.act(Action{Kind: Wake, At: d.wake})
	}
	return d.actions
}
