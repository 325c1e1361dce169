package plan_test

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// apply starts the actions and schedules their outcomes.
func (w *world) apply(a plan.Action) {
	m := w.find(a.ID)
	switch a.Kind {
	case plan.Create:
		if a.Immediate {
			w.payOne()
		}
		w.create()
	case plan.Resume:
		w.begin(m, func() { w.makeVM(m) })
	case plan.Drain:
		w.begin(m, func() { w.drain(m, a) })
	case plan.Delete:
		w.begin(m, func() { w.delete(m, a) })
	case plan.Tombstone:
		w.begin(m, func() { w.tombstone(m, a.Reason) })
	case plan.Prune:
		w.begin(m, func() { w.forgetMachine(m) })
	case plan.ClearLeaving:
		w.group.Leaving = slices.DeleteFunc(slices.Clone(w.group.Leaving), func(id fleet.InstanceID) bool { return slices.Contains(a.IDs, id) })
	case plan.ForgetAbort:
		w.group.Refuses = ""
	case plan.Forget:
		w.forgotten = true
	case plan.Wake: // handled by decide
	}
}

// begin makes a machine busy until do has run. If the term has ended by then, the step is lost
// or takes effect nevertheless. Some steps fail.
func (w *world) begin(m *machine, do func()) {
	m.busy = true
	term := w.term
	w.after(time.Millisecond+w.upTo(300*time.Millisecond), func() {
		switch {
		case term != w.term && w.chance(0.5):
			w.say("late step on %s lost", name(m.ID))
		case term != w.term:
			busy := m.busy
			do()
			m.busy = busy // of an earlier term
		case !w.calm && w.chance(0.1):
			w.say("step on %s failed", name(m.ID))
			m.busy = false
		default:
			m.busy = false
			do()
		}
	})
}

// create chooses a new id, writes its record, and then makes the VM.
func (w *world) create() {
	w.ids++
	m := &machine{Instance: fleet.Instance{
		ID: newID(w.now, w.ids), Tenant: "default", Group: "web", Phase: fleet.Pending,
		CreatedAt: w.now, Epoch: uint64(w.term), Hashes: w.group.Hashes,
	}, busy: true}
	w.machines = append(w.machines, m)
	term := w.term
	w.after(time.Millisecond+w.upTo(100*time.Millisecond), func() {
		if term != w.term && w.chance(0.5) {
			w.say("record of %s lost", name(m.ID))
			w.forgetMachine(m)
			return
		}
		m.recorded = true
		if term != w.term {
			w.say("record of %s landed late", name(m.ID))
			m.busy, m.stray = false, w.leading // a record that exists at takeover is not stray
			return
		}
		w.makeVM(m)
	})
}

// makeVM calls the provider, which may fail definitely or with an unknown outcome.
func (w *world) makeVM(m *machine) {
	term := w.term
	if m.Phase != fleet.Pending || !m.recorded {
		return
	}
	m.busy = true
	m.Provider.CreateAttemptedAt = new(w.now) // written before the call
	w.after(50*time.Millisecond+w.upTo(time.Second), func() {
		mine := term == w.term
		if mine {
			m.busy = false
		}
		switch {
		case w.failCreates && !m.made:
			if mine {
				w.say("create of %s failed", name(m.ID))
				m.judged = true
				w.failed(false)
				w.tombstone(m, "create-failed")
			}
		case !mine && w.chance(0.5), mine && !w.calm && w.chance(0.1):
			w.say("create of %s lost", name(m.ID))
			m.retryAt = w.now.Add(time.Second)
		default:
			if mine && !w.pace.Settling {
				w.succeeded()
			}
			lostReply := !mine || !w.calm && w.chance(0.1)
			w.boot(m, lostReply)
		}
	})
}

// boot makes the VM; its agent registers after a while, or never.
func (w *world) boot(m *machine, lostReply bool) {
	if !m.made {
		m.made, m.alive = true, true
		if w.calm || w.chance(0.9) {
			w.after(time.Second+w.upTo(8*time.Second), func() { w.register(m) })
		}
	}
	if lostReply {
		w.say("reply to create of %s lost", name(m.ID))
		m.retryAt = w.now.Add(time.Second)
		return
	}
	m.Provider.ID = "vm-" + string(m.ID)
	w.learn(m)
}

func (w *world) register(m *machine) {
	if !m.alive || !m.recorded || m.Phase != fleet.Pending {
		return
	}
	if !w.leading {
		w.after(time.Second, func() { w.register(m) })
		return
	}
	w.say("%s registered", name(m.ID))
	m.Phase, m.RegisteredAt = fleet.Running, new(w.now)
	m.Provider.ID = "vm-" + string(m.ID)
	m.up, m.away, m.upAt, m.known = true, false, w.now, plan.VMAlive
	m.bare = true
	if !bare(m.Hashes.Infra) {
		w.after(w.upTo(5*time.Second), func() { m.bare = false })
	}
	if bad(m.Hashes.Infra) {
		w.after(w.upTo(14*time.Second), func() { w.die(m) })
	}
}

func (w *world) drain(m *machine, a plan.Action) {
	if m.Phase != fleet.Running {
		return // changed since
	}
	m.Phase, m.Reason, m.Drain = fleet.Draining, a.Reason, &fleet.Drain{Reason: a.Reason, DeleteAt: a.At}
	if w.chance(0.5) {
		w.after(w.upTo(15*time.Second), func() {
			if m.Phase == fleet.Draining {
				m.Drain.AckedAt = new(w.now)
			}
		})
	}
}

func (w *world) delete(m *machine, a plan.Action) {
	if m.Phase == fleet.Deleted || !m.recorded {
		return
	}
	m.Phase, m.Reason = fleet.Deleting, a.Reason
	w.silence(m)
	m.retryAt = w.now.Add(3 * time.Second)
	if !w.calm && w.chance(0.2) {
		return // not accepted: retried at retryAt
	}
	term := w.term
	w.after(w.upTo(2*time.Second), func() {
		m.alive, m.made = false, false
		if term == w.term {
			w.learn(m)
		}
	})
}

func (w *world) tombstone(m *machine, reason string) {
	if m.recorded && m.Phase.CanMove(fleet.Deleted) {
		m.Phase, m.Reason, m.DeletedAt = fleet.Deleted, reason, new(w.now)
	}
}

func (w *world) forgetMachine(m *machine) {
	w.machines = slices.DeleteFunc(w.machines, func(o *machine) bool { return o == m })
}

// learn applies the provider's answer about a VM.
func (w *world) learn(m *machine) {
	switch {
	case m.alive:
		m.known = plan.VMAlive
	case m.made:
		m.known = plan.VMDown
	default:
		m.known = plan.VMGone
	}
}

// silence applies that an agent stops reporting.
func (w *world) silence(m *machine) {
	m.heard = w.lastReport(m)
	m.up = false
}
