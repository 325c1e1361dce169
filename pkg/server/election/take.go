package election

import (
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// takePlan is how a record is to become ours.
type takePlan struct {
	pre      object.Precondition
	epoch    uint64
	baseRev  uint64
	wait     time.Duration // between knowing it ours and acting
	replaces bool          // there is a record to replace
}

// plan begins to make the seen record ours, or to make the first one.
func (m *machine) plan(epoch uint64) {
	old := m.view.record // also of a record that was removed: its holder may still act
	p := takePlan{pre: object.IfAbsent(), epoch: max(epoch, old.Epoch+1, m.floor+1), baseRev: old.Rev}
	if m.view.present {
		p.pre, p.replaces = object.IfMatch(m.view.etag), true
	}
	m.carried = m.timing.FenceWindow
	if !p.replaces || !old.Released {
		// Until the predecessor's acts are over our writes must make a successor
		// wait for them too, should it replace us before that.
		m.carried = max(m.timing.FenceWindow, old.FenceWindow)
		p.wait = withMargin(old.FenceWindow)
	}
	if !p.replaces {
		p.wait = withMargin(m.carried) // nothing says what came before
	}
	m.take, m.attempts, m.lastRev = p, nil, p.baseRev
	m.ours, m.readBack = false, false
	m.dropPeer()
	m.phase = taking
}

// pursue sends the next attempt, or finds out what became of the last one.
func (m *machine) pursue(now instant) {
	if !m.mayAsk(now, m.retryPause()) {
		return
	}
	if m.readBack {
		m.get(now)
		return
	}
	m.put(now, m.take.pre, false)
}

// put sends our record. Each attempt has a rev of its own.
func (m *machine) put(now instant, pre object.Precondition, released bool) {
	m.lastRev++
	m.tried, m.demanded = now, false
	a := attempt{rev: m.lastRev, sent: now, window: m.carried, lease: m.timing.LeaseDuration, released: released}
	m.attempts = append(m.attempts, a)
	timeout := m.attemptTimeout()
	if m.phase == releasing {
		timeout = min(timeout, max(m.releaseFor()-now.since(m.giveUpAt), releasePause))
	}
	m.emit(putRecord{id: m.begin(now, opPut), record: m.recordOf(a), pre: pre, timeout: timeout})
}

func (m *machine) recordOf(a attempt) Record {
	r := Record{
		Holder: m.holder, Epoch: m.take.epoch, Rev: a.rev, Addrs: m.addrs,
		LeaseDuration: a.lease, FenceWindow: a.window, Released: a.released,
	}
	if a.released {
		r.Successor = m.successor
	}
	return r
}

// takeFound is what a read found while a take was in doubt.
func (m *machine) takeFound(now instant, r Record, etag object.ETag, err error) {
	m.countDenials(err)
	m.readBack, m.refused = false, false
	if err == nil && r.Holder == m.holder && r.Epoch == m.take.epoch {
		if a, ok := m.attemptOf(r.Rev); ok {
			m.taken(now, a, etag)
			return
		}
	}
	unchanged := err == nil && m.take.replaces && etag == m.take.pre.Match()
	if !m.take.replaces {
		unchanged = errors.Is(err, object.ErrNotFound)
	}
	if unchanged {
		m.failed = true // try again, but not in a hot loop
		return
	}
	// Someone else was faster. What of ours is still under way can't land any more.
	m.attempts = nil
	m.phase = following
	before := m.view.record
	if m.early == earlyTried && err == nil && m.view.present && r.Holder == before.Holder && r.Epoch == before.Epoch {
		m.early = earlyMet
	}
	m.see(now, r, etag, err)
}

// countDenials counts the writes in a row that were refused for an object being there,
// while a read finds none.
func (m *machine) countDenials(found error) {
	if m.refused && !m.take.replaces && errors.Is(found, object.ErrNotFound) {
		m.denied++
		return
	}
	m.denied = 0
}

func (m *machine) attemptOf(rev uint64) (attempt, bool) {
	for _, a := range m.attempts {
		if a.rev == rev {
			return a, true
		}
	}
	return attempt{}, false
}

// taken begins the wait. It counts from now, when the write is known to have
// landed: the predecessor may have renewed until the moment before it did.
func (m *machine) taken(now instant, a attempt, etag object.ETag) {
	m.phase, m.takenAt, m.denied = waiting, now, 0
	m.demanded = false
	m.landed(now, a, etag)
}
