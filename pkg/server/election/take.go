package election

import (
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// takePlan is how to take a record.
type takePlan struct {
	pre      object.Precondition
	epoch    uint64
	baseRev  uint64
	replaces bool          // there is a record to replace
	wait     time.Duration // from waitFrom until acting
	waitFrom instant       // see acquired
}

// plan starts to take the record seen, or to create the first one.
func (m *machine) plan(epoch uint64) {
	old := m.view.record // also if the record was removed: its holder may still act
	p := takePlan{pre: object.IfAbsent(), epoch: max(epoch, old.Epoch+1, m.floor+1), baseRev: old.Rev}
	if m.view.present {
		p.pre, p.replaces, p.waitFrom = object.IfMatch(m.view.etag), true, m.view.seen
	}
	m.carried = m.timing.FenceWindow
	if !p.replaces || !old.Released {
		// Until the predecessor's actions are over, our writes must make a successor that
		// replaces us wait for them, too.
		m.carried = max(m.timing.FenceWindow, old.FenceWindow)
		p.wait = withMargin(old.FenceWindow)
	}
	if !p.replaces {
		p.wait = withMargin(m.carried) // the predecessor is unknown
	}
	m.take, m.attempts, m.lastRev = p, nil, p.baseRev
	m.ours, m.readBack = false, false
	m.dropPeer()
	m.phase = taking
}

// pursue sends the next attempt, or resolves the last one.
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

// put writes our record. Each attempt has its own rev.
func (m *machine) put(now instant, pre object.Precondition, released bool) {
	m.lastRev++
	m.tried, m.demanded = now, false
	a := attempt{rev: m.lastRev, sent: now, window: m.carried, lease: m.timing.LeaseDuration, released: released}
	m.attempts = append(m.attempts, a)
	timeout := m.attemptTimeout()
	if m.phase == releasing {
		timeout = min(timeout, max(m.releaseFor()-now.since(m.steppedDownAt), releasePause))
	}
	m.emit(putRecord{id: m.startOp(now, opPut), record: m.recordOf(a), pre: pre, timeout: timeout})
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

// resolveTake handles the record that was read while a take was in doubt.
func (m *machine) resolveTake(now instant, r Record, etag object.ETag, err error) {
	m.countDenials(err)
	m.readBack, m.refused = false, false
	if err == nil && r.Holder == m.holder && r.Epoch == m.take.epoch {
		if a, ok := m.attemptOf(r.Rev); ok {
			m.acquired(now, a, etag)
			return
		}
	}
	unchanged := err == nil && m.take.replaces && etag == m.take.pre.Match()
	if !m.take.replaces {
		unchanged = errors.Is(err, object.ErrNotFound)
	}
	if unchanged {
		m.failed = true // retry after a pause
		return
	}
	// Another server was faster. Our writes in flight can't land any more.
	m.attempts = nil
	m.phase = following
	before := m.view.record
	if m.early == earlyTried && err == nil && m.view.present && r.Holder == before.Holder && r.Epoch == before.Epoch {
		m.early = earlyMet
	}
	m.see(now, r, etag, err)
}

// countDenials counts the writes in a row that were refused because an object exists, while a
// read finds none.
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

// acquired starts the wait. Since the take was conditional on the version that it replaced, no
// renewal landed after that version, and every one that counts was sent before it was known
// here: the wait began then. If nothing was replaced, another server may have written and its
// record may have been removed until just now.
func (m *machine) acquired(now instant, a attempt, etag object.ETag) {
	m.phase, m.denied = waiting, 0
	if !m.take.replaces {
		m.take.waitFrom = now
	}
	m.demanded = false
	m.landed(now, a, etag)
}
