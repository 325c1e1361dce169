package election

import (
	"testing"
	"time"
)

// mutation is a deliberately broken rule, to show that the histories detect it. The zero value
// breaks none.
type mutation struct {
	name             string
	step             func(m *machine, was before, now instant)
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

	// from is the first seed of the search, to save time: shortly before the first seed known to
	// detect it. From any start, most are detected within thousands.
	from uint64
}

// before is the state of a machine before an event.
type before struct {
	phase phase
	sent  instant
	view  view
}

func (x mutation) apply(m *machine, was before, now instant) {
	if x.step != nil {
		x.step(m, was, now)
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
		{name: "no wait", step: func(m *machine, _ before, _ instant) { m.take.wait = 0 }},
		{name: "no wait for one's own name", from: 16_000, step: func(m *machine, was before, _ instant) {
			if was.phase == following && m.phase == taking && m.view.record.Holder == m.holder {
				m.take.wait = 0
			}
		}},
		{name: "wait by own configuration", step: func(m *machine, _ before, _ instant) {
			if m.take.wait > 0 {
				m.take.wait = withMargin(m.timing.FenceWindow)
			}
		}},
		{name: "wait counted on the wall clock", from: 3400, step: func(m *machine, _ before, now instant) {
			if m.phase == waiting && now.since(m.take.waitFrom) >= m.take.wait {
				m.take.wait = 0
				m.decide(now)
			}
		}},
		{name: "wait counted from the start of the read", step: func(m *machine, was before, _ instant) {
			if m.view.etag != was.view.etag && m.view.record.Holder != m.holder {
				m.view.seen = m.lastOp
			}
		}},
		{name: "wait counted from an earlier version", step: func(m *machine, was before, _ instant) {
			if was.view.present && m.view.etag != was.view.etag && m.view.record.Holder != m.holder {
				m.view.seen = was.view.seen
			}
		}},
		{name: "wait counted from a former holder's version", step: func(m *machine, was before, _ instant) {
			if was.view.present && m.view.record.Epoch != was.view.record.Epoch && m.view.record.Holder != m.holder {
				m.view.seen = was.view.seen
			}
		}},
		{name: "take forgets the predecessor's window", step: func(m *machine, _ before, _ instant) {
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
		{name: "fence counted from the reply", from: 700, step: func(m *machine, was before, now instant) {
			if m.sent != was.sent {
				m.sent = now
			}
		}},
		{name: "unknown write taken for landed", step: func(m *machine, _ before, _ instant) {
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
		// The version that a take replaces was known before the take was sent.
		{name: "wait counted from the send", step: func(m *machine, _ before, _ instant) {
			if m.phase == waiting {
				m.take.waitFrom = m.sent
			}
		}, harmless: true},
		{name: "silence taken for death", silenceIsDeath: true, harmless: true},
	}
}

// TestMutations: each broken rule yields two leaders, except those that are safe for a stated
// reason.
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
