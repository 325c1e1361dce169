package plan_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file is the pace of the world's creates: a plain one, so that every kind of it
// occurs.

// judge counts those that have settled since as successes, and those that have ended
// before as failures; and it owes what had settled and is lost.
func (w *world) judge() {
	for _, m := range w.machines {
		if !m.recorded || m.OnDemand || m.judged {
			continue
		}
		settled := plan.Settled(&m.Instance, w.settings, w.now)
		switch lost := m.known == plan.VMDown || m.known == plan.VMGone; {
		case m.Phase == fleet.Running && settled && !lost:
			if !m.Hashes.Outdated(w.group.Hashes) && w.pace.Settling {
				w.succeeded()
			}
			m.judged = true
		case m.Phase != fleet.Pending && m.Phase != fleet.Running && (plan.Failure(m.Reason) || settled):
			m.judged = true
			if plan.Failure(m.Reason) && !settled && !m.Hashes.Outdated(w.group.Hashes) {
				w.failed(true)
			}
		}
	}
}

// failed is one more create that came to nothing, or whose machine died young.
func (w *world) failed(died bool) {
	w.failures++
	if w.failures < 2 {
		return
	}
	w.pace = plan.Pace{NotBefore: w.now.Add(w.upTo(4 * time.Second)), Trials: 1, Settling: w.pace.Settling || died}
	w.say("pace %+v", w.pace)
}

func (w *world) succeeded() {
	w.failures = 0
	if w.pace.Trials++; w.pace.Trials == 1 || w.pace.Trials > 4 {
		w.pace = plan.Pace{}
	}
}

// payOne has a replacement begin for one that is owed.
func (w *world) payOne() {
	for _, m := range w.machines {
		if m.owed {
			m.owed = false
			return
		}
	}
	w.fail("a replacement that nobody is owed")
}

// badImage has every machine from now on die young, for a while.
func (w *world) badImage() {
	w.group.Hashes.Infra = fmt.Sprintf("bad%d", w.rng.IntN(2))
	w.pace, w.failures = plan.Pace{}, 0
	w.say("infra %s", w.group.Hashes.Infra)
}

// mend ends it.
func (w *world) mend() {
	if bad(w.group.Hashes.Infra) {
		w.group.Hashes.Infra, w.pace, w.failures = "h0", plan.Pace{}, 0
	}
}

func bad(infra string) bool { return strings.HasPrefix(infra, "bad") }

// lose owes a managed instance that had settled, and has died.
func (w *world) lose(m *machine) {
	m.owed = m.recorded && !m.OnDemand && m.Phase == fleet.Running && plan.Settled(&m.Instance, w.settings, w.now)
}
