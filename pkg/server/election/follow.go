package election

import (
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// follow watches the record and campaigns when it may.
func (m *machine) follow(now instant) {
	m.followPeer(now)
	if m.op != opNone {
		return
	}
	poll := m.due(now, m.lastOp, m.pollWait)
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
	if poll {
		m.poll(now)
	}
}

// mayCampaign reports whether the record seen last may be replaced now.
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
		return true // a write of ours that landed after we had given it up
	case m.due(now, m.view.seen, withMargin(r.LeaseDuration)):
		return true
	case m.peer.dead:
		return m.mayTryEarly(now, r.LeaseDuration)
	}
	return false
}

// mayTryEarly reports whether a sign of death may be acted on: once within a lease, as
// it may be wrong. Once more when that try met a write of the holder's, which may have
// been under way when it died. A holder that is dead has no second one.
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
		m.emit(askFirstEpoch{id: m.begin(now, opFirstEpoch)})
		return
	}
	m.plan(m.view.record.Epoch + 1)
}

// gotFirstEpoch is the answer to askFirstEpoch.
func (m *machine) gotFirstEpoch(now instant, id uint64, epoch uint64, err error) {
	if m.settled(opFirstEpoch, id) && m.phase == following {
		if err != nil {
			m.failed, m.known = true, false // look again first: it may have taken long
		} else {
			m.plan(max(epoch, 1))
		}
	}
	m.decide(now)
}

// poll reads the record. While its holder tells us of each renewal the store is
// asked only in case what we are told has come off the rails.
func (m *machine) poll(now instant) {
	m.pollWait = m.pollInterval()
	if m.peer.state == peerLive {
		m.pollWait = safetyPoll
	}
	m.pollWait -= m.jitter(m.pollWait / 4)
	m.get(now)
}

// pollInterval bounds how late a standby without a stream sees a renewal, and so
// how late it suspects: a sixth of the lease, at most 5 s.
func (m *machine) pollInterval() time.Duration {
	lease := m.timing.LeaseDuration
	if m.view.present {
		lease = m.view.record.LeaseDuration
	}
	return min(lease/6, maxPoll)
}

// see takes note of what the store holds. An unreadable record is left alone:
// whoever wrote it may be leading.
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
		if !told { // else the holder told us of a newer one while we read
			m.update(now, r, etag)
		}
	}
}

// update takes note of a record, from the store or from its holder.
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
