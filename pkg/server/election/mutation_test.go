package election

import (
	"testing"
	"time"
)

// mutation is a rule broken on purpose, to show that the histories find it. The
// zero value breaks none.
type mutation struct {
	name             string
	step             func(m *machine, phase phase, sent instant, now instant)
	stop             func(m *machine)
	ignoresEtag      func(c putRecord) bool
	monotonicOnly    bool
	wallOnly         bool
	silenceIsDeath   bool
	checkBeforeWrite bool
	noFence          bool
	window           func(m *machine) time.Duration // in which acts may start
	secretTiming     bool                           // listeners are not told of another window
	harmless         bool                           // costs changes of leader, never a second one

	// from is where the search begins, to save time: not far before the first
	// seed that is known to find it. Any start finds it, most within thousands.
	from uint64
}

func (x mutation) apply(m *machine, phase phase, sent, now instant) {
	if x.step != nil {
		x.step(m, phase, sent, now)
	}
}

func (x mutation) beforeStop(m *machine) {
	if x.stop != nil {
		x.stop(m)
	}
}

func (x mutation) fenced(m *machine, now instant, epoch uint64) bool {
	return x.window != nil && m.inTerm(epoch) && now.since(m.sent) < x.window(m)
}

func (x mutation) unconditional(c putRecord) bool { return x.ignoresEtag != nil && x.ignoresEtag(c) }

func mutations() []mutation {
	return []mutation{
		{name: "no wait", step: func(m *machine, _ phase, _, _ instant) { m.take.wait = 0 }},
		{name: "no wait for one's own name", from: 1400, step: func(m *machine, was phase, _, _ instant) {
			if was == following && m.phase == taking && m.view.record.Holder == m.holder {
				m.take.wait = 0
			}
		}},
		{name: "wait by own configuration", step: func(m *machine, _ phase, _, _ instant) {
			if m.take.wait > 0 {
				m.take.wait = withMargin(m.timing.FenceWindow)
			}
		}},
		{name: "wait counted on the wall clock", from: 3400, step: func(m *machine, _ phase, _, now instant) {
			if m.phase == waiting && now.since(m.takenAt) >= m.take.wait {
				m.take.wait = 0
				m.decide(now)
			}
		}},
		{name: "take forgets the predecessor's window", step: func(m *machine, _ phase, _, _ instant) {
			m.carried = m.timing.FenceWindow
			for i, c := range m.out {
				if put, ok := c.(putRecord); ok {
					put.record.FenceWindow = m.timing.FenceWindow
					m.out[i] = put
				}
			}
		}},
		{name: "release while waiting", from: 4600, stop: func(m *machine) {
			if m.phase == waiting {
				m.phase = leading
			}
		}},
		{name: "no fence", noFence: true},
		{name: "fence checked before the write only", checkBeforeWrite: true},
		{name: "fence counted from the reply", from: 700, step: func(m *machine, _ phase, sent, now instant) {
			if m.sent != sent {
				m.sent = now
			}
		}},
		{name: "unknown write taken for landed", step: func(m *machine, _ phase, _, _ instant) {
			if m.phase == leading && m.failed && len(m.attempts) > 0 {
				m.sent = m.tried
			}
		}},
		{name: "a longer window holds at once", window: func(m *machine) time.Duration { return m.timing.FenceWindow }},
		{name: "a shorter window waits for its write", window: func(m *machine) time.Duration { return m.view.record.FenceWindow }},
		{name: "a longer window is kept from listeners", secretTiming: true},
		{name: "fence on the monotonic clock alone", monotonicOnly: true},
		{name: "fence on the wall clock alone", wallOnly: true},
		{name: "take without a condition", ignoresEtag: func(c putRecord) bool { return c.record.Rev%50 == 0 }},
		// The take replaces exactly the record that was seen before it was sent, so
		// the predecessor's last renewal was sent earlier still.
		{name: "wait counted from the send", step: func(m *machine, _ phase, _, _ instant) {
			if m.phase == waiting {
				m.takenAt = m.sent
			}
		}, harmless: true},
		{name: "silence taken for death", silenceIsDeath: true, harmless: true},
	}
}

// TestMutations shows that the histories can tell: each broken rule yields two
// leaders, except for those that are safe for a reason.
func TestMutations(t *testing.T) {
	for _, x := range mutations() {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			histories := uint64(20_000)
			if x.harmless {
				histories = 300
			}
			for seed := x.from; seed < x.from+histories; seed++ {
				w, err := play(seed, x, nil)
				if err == nil || !w.unsafe {
					continue
				}
				if x.harmless {
					t.Errorf("seed %d: %v", seed, err)
				}
				t.Logf("%s: found by seed %d: %v", x.name, seed, err)
				return
			}
			if !x.harmless {
				t.Errorf("%d histories did not notice", histories)
			}
		})
	}
}
