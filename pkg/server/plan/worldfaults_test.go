package plan_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// fault causes one fault.
func (w *world) fault() {
	switch w.rng.IntN(19) {
	case 0, 1:
		w.group.Size = w.rng.IntN(6)
		w.say("size %d", w.group.Size)
	case 2:
		w.ask(w.pick(fleet.Pending, fleet.Running, fleet.Draining), w.chance(0.7))
	case 3, 4:
		w.die(w.pick(fleet.Running))
	case 5:
		w.hang(w.pick(fleet.Running))
	case 6:
		w.restart(w.pick(fleet.Running))
	case 7:
		w.announce(w.pick(fleet.Running, fleet.Draining))
	case 8, 9:
		w.changeLeader()
	case 10:
		w.failCreates = true
		w.say("creates fail")
		w.after(w.upTo(20*time.Second), func() { w.failCreates = false })
	case 11:
		w.say("all die")
		for _, m := range slices.Clone(w.machines) {
			w.die(m)
		}
	case 12:
		w.reconfigure()
	case 13:
		w.demand()
	case 15:
		w.grant = w.rng.IntN(4)
		w.say("the shard grants %d", w.grant)
	case 16:
		w.badImage()
	case 17:
		w.unfurnish(w.pick(fleet.Running))
	case 18:
		w.group.RolloutPaused = !w.group.RolloutPaused
		w.say("the rollout is paused: %v", w.group.RolloutPaused)
	case 14:
		w.askOut(w.pick(fleet.Pending, fleet.Running, fleet.Draining))
	}
}

// pick draws a machine in one of the phases, or nil.
func (w *world) pick(phases ...fleet.Phase) *machine {
	var fit []*machine
	for _, m := range w.machines {
		if m.recorded && slices.Contains(phases, m.Phase) {
			fit = append(fit, m)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[w.rng.IntN(len(fit))]
}

// ask adds an id to the leaving list, with or without reducing the size.
func (w *world) ask(m *machine, smaller bool) {
	if m == nil {
		return
	}
	w.group.Leaving = append(slices.Clone(w.group.Leaving), m.ID)
	if smaller && w.group.Size > 0 {
		w.group.Size--
	}
	w.say("%s is to leave, size %d", name(m.ID), w.group.Size)
}

// demand adds an on-demand instance: a record whose create was not called yet.
func (w *world) demand() {
	if w.group.Removed || w.group.Disabled != "" {
		return
	}
	w.ids++
	m := &machine{Instance: fleet.Instance{
		ID: newID(w.now, w.ids), Tenant: "default", Group: "web", OnDemand: true, Phase: fleet.Pending,
		CreatedAt: w.now, Epoch: uint64(w.term), Hashes: fleet.Hashes{Infra: "its own"},
	}, recorded: true}
	w.machines = append(w.machines, m)
	w.say("%s is demanded", name(m.ID))
}

// askOut requests the removal of one instance, or its replacement.
func (w *world) askOut(m *machine) {
	if m != nil {
		m.RemovalAskedAt = new(w.now)
		w.say("%s is asked out", name(m.ID))
	}
}

// unfurnish takes a machine's files, for a while or until the faults are over.
func (w *world) unfurnish(m *machine) {
	if m == nil || bare(m.Hashes.Infra) {
		return
	}
	w.say("%s lost its files", name(m.ID))
	m.bare = true
	if w.chance(0.5) {
		w.after(w.upTo(time.Minute), func() { m.bare = false })
	}
}

// die stops or removes a VM. The stream breaks, and the leader polls.
func (w *world) die(m *machine) {
	if m == nil || !m.alive {
		return
	}
	w.say("%s died", name(m.ID))
	w.silence(m)
	m.alive, m.made = false, w.chance(0.5)
	term := w.term
	w.after(w.upTo(200*time.Millisecond), func() {
		if term == w.term {
			w.lose(m)
			w.learn(m)
		}
	})
}

// hang silences an agent while its VM runs; it may come back.
func (w *world) hang(m *machine) {
	if m == nil || !m.up {
		return
	}
	w.say("%s fell silent", name(m.ID))
	w.silence(m)
	if w.chance(0.5) {
		w.after(w.upTo(time.Minute), func() { w.comeBack(m) })
	}
}

func (w *world) comeBack(m *machine) {
	if !m.alive || m.up || !m.recorded || m.Phase != fleet.Running && m.Phase != fleet.Draining {
		return
	}
	w.say("%s is back", name(m.ID))
	m.up, m.away, m.upAt, m.leaving = true, false, w.now, time.Time{}
}

// restart stops an agent, which reports that, and starts it again before or after the grace
// period.
func (w *world) restart(m *machine) {
	if m == nil || !m.up || m.away {
		return
	}
	w.say("%s restarts", name(m.ID))
	w.silence(m)
	m.heard, m.leaving = w.now, w.now
	w.after(w.upTo(10*time.Second), func() { w.comeBack(m) })
}

// announce sends a spot notice and carries it out.
func (w *world) announce(m *machine) {
	if m == nil || !m.up || m.away {
		return
	}
	m.notice = &fleet.Notice{}
	if w.chance(0.8) {
		m.notice.At = w.now.Add(w.upTo(30 * time.Second))
	}
	w.say("%s got a notice", name(m.ID))
	w.after(30*time.Second, func() { w.die(m) })
}

// changeLeader ends the term. The next one begins after a while, with one list of the provider,
// and agents connect one after the other.
func (w *world) changeLeader() {
	if !w.leading {
		return
	}
	w.say("leader lost")
	w.leading, w.wakeAt = false, time.Time{}
	w.term++
	w.after(w.upTo(3*time.Second), w.lead)
}

func (w *world) lead() {
	w.leading, w.takeover, w.pace, w.failures = true, w.now, plan.Pace{}, 0
	w.say("leader of term %d", w.term)
	for _, m := range w.machines {
		m.busy, m.retryAt, m.stray, m.notice, m.leaving, m.heard = false, time.Time{}, false, nil, time.Time{}, time.Time{}
		m.immediate, m.judged = false, false
		if w.learn(m); m.Phase == fleet.Pending && m.Provider.ID == "" && !m.made && w.chance(0.5) {
			m.known = plan.VMUnknown
		}
		if m.away = true; !m.up {
			continue
		}
		w.after(w.upTo(5*time.Second), func() {
			if m.up {
				m.away, m.upAt = false, w.now
			}
		})
	}
}

// reconfigure changes the Infra hash, disables the group for a while, or enables expiry by age
// until the faults are over.
func (w *world) reconfigure() {
	switch w.rng.IntN(4) {
	case 0:
		w.group.Hashes.Infra = fmt.Sprintf("h%d", w.rng.IntN(3))
		w.pace, w.failures = plan.Pace{}, 0
		w.say("infra %s", w.group.Hashes.Infra)
	case 1:
		w.say("disabled")
		w.group.Disabled = "broken"
		w.after(w.upTo(20*time.Second), func() { w.group.Disabled = "" })
	case 2:
		w.settings.EligibleAge = 90 * time.Second
	case 3:
		w.settings.ForcedAge = 2 * time.Minute
	}
}
