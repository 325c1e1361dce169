package election

import (
	"github.com/nstance/nstance/pkg/object"
)

// expire ends what time ends, whatever woke us, and reports whether it did.
func (m *machine) expire(now instant) bool {
	if m.due(now, m.sent, m.view.record.LeaseDuration) {
		m.lose(errLeaseOver)
		return true
	}
	if m.phase != waiting || !m.passed(now.surelySince(m.takenAt), m.take.wait) {
		return false
	}
	m.phase = leading
	// Whatever a predecessor could start has been started: from here on our writes
	// speak of our own acts alone.
	m.carried = m.timing.FenceWindow
	m.lack, m.gaveUpTo = Lack{}, Plight{}
	m.emit(startLead{epoch: m.view.record.Epoch})
	return true
}

// hold renews: regularly, when someone wants to act, when the timing changed, and
// soon after an attempt whose outcome is unknown.
func (m *machine) hold(now instant) {
	m.wakeIn(maxSleepHolding)
	if m.phase == leading {
		m.askOthers(now)
	}
	regular := m.due(now, m.tried, m.timing.RenewInterval)
	if !m.mayAsk(now, m.retryPause()) {
		return
	}
	switch {
	case m.readBack:
		m.get(now)
	case regular || m.demanded || m.failed || m.retimed:
		m.put(now, object.IfMatch(m.view.etag), false)
	}
}

// landed takes note of a write of ours that is known to be the record now. All
// other attempts were conditional on an older etag and can't land any more.
func (m *machine) landed(now instant, a attempt, etag object.ETag) {
	m.view = view{record: m.recordOf(a), etag: etag, present: true, seen: now}
	m.ours, m.sent, m.demanded = true, a.sent, false
	m.retimed = m.retimed && (a.window != m.carried || a.lease != m.timing.LeaseDuration)
	m.attempts, m.readBack, m.failed = nil, false, false
	m.emit(publish{record: m.view.record, etag: etag})
	if a.released {
		m.giveUpRecord()
	}
}

// holdFound is what a read found after one of our writes met a conflict.
func (m *machine) holdFound(now instant, r Record, etag object.ETag, err error) {
	m.readBack = false
	switch {
	case err != nil:
		m.lose(errRecordGone)
	case r.Holder != m.holder || r.Epoch != m.view.record.Epoch:
		m.lose(errSuperseded)
	case r.Rev == m.view.record.Rev:
		m.view.etag, m.failed = etag, true // nothing landed yet: again, paced
	default:
		a, ok := m.attemptOf(r.Rev)
		if !ok {
			m.lose(errSuperseded)
			return
		}
		m.landed(now, a, etag)
	}
}

// lose ends our hold on the record without a release.
func (m *machine) lose(cause error) {
	m.disown()
	switch m.phase {
	case leading:
		m.endTerm(cause)
	case waiting, releasing:
		m.giveUpRecord()
	default: // stopping: what runs in the term must return first
	}
}

// endTerm stops the term at once; nothing may act from here on.
func (m *machine) endTerm(cause error) {
	m.phase = stopping
	m.emit(stopLead{cause: cause})
}

// giveUpRecord goes back to following, or ends the campaign. A request that is
// still under way has no one left who wants its answer; what it did to the record
// is seen when the record is read again.
func (m *machine) giveUpRecord() {
	m.disown()
	m.attempts, m.readBack, m.failed, m.successor = nil, false, false, ""
	m.orphan = m.op != opNone
	m.known = false
	m.phase = following
	if m.quit {
		m.finish()
	}
}

// disown tells peers that we hold no record, unless the release has told them.
func (m *machine) disown() {
	if m.ours && !m.view.record.Released {
		m.emit(publish{})
	}
	m.ours = false
}

func (m *machine) finish() {
	m.disown()
	m.dropPeer()
	m.phase = done
}
