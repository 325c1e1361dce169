package election

import (
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// follow watches the record and campaigns if permitted.
func (m *machine) follow(now instant) {
	m.followPeer(now)
	if m.op != opNone {
		return
	}
	wait := m.pollWait
	if m.streamSilent(now) {
		wait = m.pollInterval()
	}
	poll := m.due(now, m.lastOp, wait)
	if !m.known {
		if !m.failed || poll {
			m.poll(now)
		}
		return
	}
	if m.mayCampaign(now) {
		m.campaign(now)
		return
	}
	if poll && !m.peer.grace { // a read would hold up the take that is about to follow
		m.poll(now)
	}
}

// mayCampaign reports whether the last record seen may be replaced now.
func (m *machine) mayCampaign(now instant) bool {
	if m.holdoff > 0 && !m.due(now, m.holdoffFrom, m.holdoff) || m.exhausted() {
		return false
	}
	r := m.view.record
	switch {
	case m.view.present && r.Released && m.reserved(now):
		return false
	case !m.view.present, r.Released:
		return true
	case r.Holder == m.holder:
		return true // an abandoned write of this server that landed late
	case m.due(now, m.view.seen, withMargin(r.LeaseDuration)):
		return true
	case m.peer.dead:
		return m.mayTryEarly(now, r.LeaseDuration)
	}
	return false
}

// mayTryEarly reports whether a sign of death may be acted on: once per lease, as it may be
// wrong, and once more if the first try met a write of the holder, which may have been in
// flight when the holder died. A dead holder has no second one.
func (m *machine) mayTryEarly(now instant, lease time.Duration) bool {
	switch {
	case m.early == earlyUnused || m.due(now, m.earlyAt, lease):
		m.earlyAt, m.early = now, earlyTried
	case m.early == earlyMet:
		m.early = earlyUsedUp
	default:
		return false
	}
	return true
}

func (m *machine) campaign(now instant) {
	m.holdoff = 0
	if !m.view.present {
		m.emit(askFirstEpoch{id: m.startOp(now, opFirstEpoch)})
		return
	}
	m.plan(m.view.record.Epoch + 1)
}

// gotFirstEpoch is the result of askFirstEpoch.
func (m *machine) gotFirstEpoch(now instant, id uint64, epoch uint64, err error) {
	if m.finishOp(opFirstEpoch, id) && m.phase == following {
		if err != nil {
			m.failed, m.known = true, false // read the record again first: this may have taken long
		} else {
			m.plan(max(epoch, 1))
		}
	}
	m.decide(now)
}

// poll reads the record. While the holder streams its renewals in time, the store is read only as
// a safeguard.
func (m *machine) poll(now instant) {
	m.pollWait = m.pollInterval()
	if m.peer.state == peerLive {
		m.pollWait = safetyPoll
	}
	m.pollWait -= m.jitter(m.pollWait / 4)
	m.get(now)
}

// streamSilent reports whether the holder's stream is open but has brought no renewal for half a
// lease: its host may have vanished or its network may be cut. That is no sign of death, but the
// stream can't be relied on: a renewal that was missed would otherwise be noticed only by the
// take that conflicts with it at the end of the lease, and a second lease would begin then.
func (m *machine) streamSilent(now instant) bool {
	return m.peer.state == peerLive && m.due(now, m.view.seen, m.view.record.LeaseDuration/2)
}

// pollInterval returns the poll interval of a standby without a stream, which bounds how late it
// sees a renewal: a sixth of the lease, at most 5 s.
func (m *machine) pollInterval() time.Duration {
	lease := m.timing.LeaseDuration
	if m.view.present {
		lease = m.view.record.LeaseDuration
	}
	return min(lease/6, maxPoll)
}

// see records what the store holds. An unreadable record is left alone: its writer may be
// leading.
func (m *machine) see(now instant, r Record, etag object.ETag, err error) {
	switch {
	case errors.Is(err, object.ErrNotFound):
		m.known, m.view.present, m.view.etag = true, false, ""
		m.dropPeer()
	case err != nil:
		m.known, m.failed = false, true
		m.dropPeer()
	default:
		m.known = true
		told := m.peer.state == peerLive && r.Epoch == m.view.record.Epoch && r.Rev < m.view.record.Rev
		if !told { // otherwise the holder sent a newer one during the read
			m.update(now, r, etag)
		}
	}
}

// update records a record from the store or from its holder.
func (m *machine) update(now instant, r Record, etag object.ETag) {
	if m.view.present && m.view.etag == etag {
		return
	}
	if r.Holder != m.view.record.Holder || r.Epoch != m.view.record.Epoch {
		m.dropPeer()
	}
	m.view = view{record: r, etag: etag, present: true, seen: now}
	m.peer.dead, m.peer.grace = false, false
}
