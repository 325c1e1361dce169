package election

import (
	"fmt"
	"time"
)

// SetTiming changes the timing, also during a term. A leader renews at once to update the
// record; until a write with a longer fence window or lease is known to have landed, the
// shorter one applies. Others follow the record. SetTiming does not block and is safe for
// concurrent use. An invalid timing is refused without any change.
func (e *Elector) SetTiming(t Timing) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("set election timing: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.running {
		e.machine.timing = t
		return nil
	}
	e.stepLocked(func(m *machine, now instant) { m.retime(now, t) })
	return nil
}

// retime changes the timing. A server that is taking the record, or waits, has put the
// predecessor's window in its writes and keeps it; its own is used once it leads.
func (m *machine) retime(now instant, t Timing) {
	timed := t.onRecord() != m.timing.onRecord()
	m.timing = t
	if timed {
		if m.phase == leading {
			m.carried = t.FenceWindow
		}
		m.retimed = m.ours
	}
	m.decide(now)
}

// window returns how long after a renewal was sent actions may start. A successor waits for
// the window of the record that it replaced, which may be the one in view or any attempt in
// doubt; so the shortest of these applies, or our own if it is shorter still, because the next
// attempt has it.
func (m *machine) window() time.Duration {
	w := min(m.timing.FenceWindow, m.view.record.FenceWindow)
	for _, a := range m.attempts {
		w = min(w, a.window)
	}
	return w
}

// retimed reports whether r changes how long others have to wait, which they must learn together
// with the write.
func (r Record) retimed(old Record) bool {
	return r.Successor != old.Successor || r.FenceWindow != old.FenceWindow || r.LeaseDuration != old.LeaseDuration
}
