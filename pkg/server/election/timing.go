package election

import (
	"fmt"
	"time"
)

// SetTiming has the elector go on with another timing, in the middle of a term
// too. A leader renews at once, so that the record says so soon; until a write
// that carries a longer fence window or lease is known to have landed, the shorter
// one holds. Others keep to what the record says. It returns at once and is safe
// for concurrent use. A timing that is not valid is refused, and nothing changes.
func (e *Elector) SetTiming(t Timing) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("set the election's timing: %w", err)
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

// retime goes on with another timing. A server that takes the record, or waits,
// has promised the predecessor's window in its writes and keeps to that; when it
// leads its own is carried.
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

// window is how long after a renewal was sent acts may start. A successor waits
// by the window of the record that it replaced, and that may be the one that we
// know of or any attempt in doubt; so the shortest of all these holds, and ours
// if it is shorter still, because the next attempt carries it.
func (m *machine) window() time.Duration {
	w := min(m.timing.FenceWindow, m.view.record.FenceWindow)
	for _, a := range m.attempts {
		w = min(w, a.window)
	}
	return w
}

// retimed reports whether r says something else than old about how long others
// have to wait, which they must be told with the write that says so.
func (r Record) retimed(old Record) bool {
	return r.Successor != old.Successor || r.FenceWindow != old.FenceWindow || r.LeaseDuration != old.LeaseDuration
}
