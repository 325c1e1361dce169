package plan_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file is a simple pace of the world's creates, so that every kind of pace occurs.

// judge counts instances that have settled as successes and those that ended before as failures,
// and marks lost ones that had settled as immediate.
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

// failed counts a failed create, or one whose machine died young.
func (w *world) failed(died bool) {
	w.failures++
	if w.failures < 2 {
		return
	}
	w.pace = plan.Pace{NotBefore: w.now.Add(w.upTo(4 * time.Second)), Probation: 1, Settling: w.pace.Settling || died}
	w.say("pace %+v", w.pace)
}

func (w *world) succeeded() {
	w.failures = 0
	if w.pace.Probation++; w.pace.Probation == 1 || w.pace.Probation > 4 {
		w.pace = plan.Pace{}
	}
}

// payOne begins the replacement of one immediate instance.
func (w *world) payOne() {
	for _, m := range w.machines {
		if m.immediate {
			m.immediate = false
			return
		}
	}
	w.fail("a replacement that is not immediate")
}

// badImage makes new machines die young for a while, or get no files.
func (w *world) badImage() {
	w.group.Hashes.Infra = fmt.Sprintf("%s%d", []string{"bad", "bare"}[w.rng.IntN(2)], w.rng.IntN(2))
	w.pace, w.failures = plan.Pace{}, 0
	w.say("infra %s", w.group.Hashes.Infra)
}

// mend ends badImage and unfurnish.
func (w *world) mend() {
	for _, m := range w.machines {
		m.bare = m.bare && bare(m.Hashes.Infra)
	}
	if bad(w.group.Hashes.Infra) || bare(w.group.Hashes.Infra) {
		w.group.Hashes.Infra, w.pace, w.failures = "h0", plan.Pace{}, 0
	}
}

// isBad reports whether a machine was made from a definition of badImage: it is not replaced for that while
// the rollout is paused.
func (m *machine) isBad() bool { return bad(m.Hashes.Infra) || bare(m.Hashes.Infra) }

func bad(infra string) bool  { return strings.HasPrefix(infra, "bad") }
func bare(infra string) bool { return strings.HasPrefix(infra, "bare") }

// lose marks a dead managed instance as immediate if it had settled.
func (w *world) lose(m *machine) {
	m.immediate = m.recorded && !m.OnDemand && m.Phase == fleet.Running && plan.Settled(&m.Instance, w.settings, w.now)
}
