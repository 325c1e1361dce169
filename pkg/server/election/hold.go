package election

import (
	"github.com/nstance/nstance/pkg/object"
)

// expire handles deadlines that passed, and reports whether there were any.
func (m *machine) expire(now instant) bool {
	if m.due(now, m.sent, m.view.record.LeaseDuration) {
		m.lose(errLeaseOver)
		return true
	}
	if m.phase != waiting || !m.passed(now.surelySince(m.take.waitFrom), m.take.wait) {
		return false
	}
	m.phase = leading
	// The predecessor's actions are over: from here on, writes cover only this server's own.
	m.carried = m.timing.FenceWindow
	m.lack, m.gaveUpTo = Lack{}, Blocked{}
	m.emit(startLead{epoch: m.view.record.Epoch})
	return true
}

// hold renews: regularly, when a caller wants to act, when the timing changed, and soon after an
// attempt with an unknown outcome.
func (m *machine) hold(now instant) {
	m.wakeIn(maxSleepHolding)
	if m.phase == leading {
		m.pollStandbys(now)
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

// landed records that a write of this server is known to be the current record. All other
// attempts were conditional on an older etag and can't land any more.
func (m *machine) landed(now instant, a attempt, etag object.ETag) {
	m.view = view{record: m.recordOf(a), etag: etag, present: true, seen: now}
	m.ours, m.sent, m.demanded = true, a.sent, false
	m.retimed = m.retimed && (a.window != m.carried || a.lease != m.timing.LeaseDuration)
	m.attempts, m.readBack, m.failed = nil, false, false
	m.emit(publish{record: m.view.record, etag: etag})
	if a.released {
		m.abandonRecord()
	}
}

// holdFound handles the record that was read after a conflict.
func (m *machine) holdFound(now instant, r Record, etag object.ETag, err error) {
	m.readBack = false
	switch {
	case err != nil:
		m.lose(errRecordGone)
	case r.Holder != m.holder || r.Epoch != m.view.record.Epoch:
		m.lose(errSuperseded)
	case r.Rev == m.view.record.Rev:
		m.view.etag, m.failed = etag, true // nothing landed yet: retry after a pause
	default:
		a, ok := m.attemptOf(r.Rev)
		if !ok {
			m.lose(errSuperseded)
			return
		}
		m.landed(now, a, etag)
	}
}

// lose gives up the record without a release.
func (m *machine) lose(cause error) {
	m.disown()
	switch m.phase {
	case leading:
		m.endTerm(cause)
	case waiting, releasing:
		m.abandonRecord()
	default: // stopping: the term's work must return first
	}
}

// endTerm ends the term at once; nothing may act from here on.
func (m *machine) endTerm(cause error) {
	m.phase = stopping
	m.emit(stopLead{cause: cause})
}

// abandonRecord returns to following, or ends the campaign. The result of a running request is
// ignored; its effect on the record is seen when the record is read again.
func (m *machine) abandonRecord() {
	m.disown()
	m.attempts, m.readBack, m.failed, m.successor = nil, false, false, ""
	m.orphan = m.op != opNone
	m.known = false
	m.phase = following
	if m.quit {
		m.finish()
	}
}

// disown tells peers that this server holds no record, unless the release did.
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
