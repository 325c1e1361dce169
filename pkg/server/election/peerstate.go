package election

import "time"

type peerState int

const (
	peerIdle peerState = iota
	peerDialing
	peerLive // the holder streams its renewals
)

// peer is the connection to the holder of the last record seen.
type peer struct {
	state  peerState
	id     uint64
	epoch  uint64 // of the streamed record
	dialed bool
	dialAt instant

	// Signs of death: dead if there is one; grace while the holder of a closed connection may
	// still be reached again.
	dead    bool
	grace   bool
	closeAt instant
}

func (m *machine) dropPeer() {
	if m.peer.state != peerIdle {
		m.emit(hangUp{id: m.peer.id})
	}
	m.peer = peer{}
}

// followPeer keeps a connection to the holder.
func (m *machine) followPeer(now instant) {
	r := m.view.record
	if !m.hasPeers || !m.known || !m.view.present || r.Released || r.Holder == m.holder || r.Addrs.Election == "" {
		m.dropPeer()
		return
	}
	if m.peer.grace && m.due(now, m.peer.closeAt, graceAfterClose) {
		m.peer.grace, m.peer.dead = false, true
	}
	if m.peer.state != peerIdle {
		return
	}
	pause := m.pollInterval()
	if m.peer.grace {
		pause = redialPause
	}
	if m.peer.dialed && !m.due(now, m.peer.dialAt, pause) {
		return
	}
	m.peer.state, m.peer.id = peerDialing, m.id()
	m.peer.dialed, m.peer.dialAt = true, now
	m.emit(dialPeer{id: m.peer.id, addr: r.Addrs.Election, timeout: m.dialTimeout()})
}

func (m *machine) dialTimeout() time.Duration { return m.pollInterval() }

// peerLine is one line from the server at the holder's address.
func (m *machine) peerLine(now instant, id uint64, l Line) {
	if m.peer.state == peerIdle || m.peer.id != id || m.phase != following {
		return
	}
	if m.peer.state == peerDialing {
		m.peerAnswered(now, l)
	} else if m.peer.epoch == m.view.record.Epoch && l.Rev > m.view.record.Rev {
		r := m.view.record
		if l.Record != nil {
			r = *l.Record
		}
		r.Rev, r.Released = l.Rev, l.Released
		m.update(now, r, l.ETag)
	}
	if l.Ask > 0 {
		m.prove(now, l.Ask)
	}
	m.decide(now)
}

// peerAnswered handles the first line, which identifies the server.
func (m *machine) peerAnswered(now instant, l Line) {
	known := m.view.record
	leads := l.Record != nil && l.Record.Holder == l.Server
	later := leads && l.Record.Epoch > known.Epoch
	newer := later || leads && l.Record.Epoch == known.Epoch && l.Rev > known.Rev
	switch {
	case l.Server != known.Holder && !later:
		m.emit(hangUp{id: m.peer.id})
		m.peer.state, m.peer.dead, m.peer.grace = peerIdle, true, false
		return
	case !leads:
		m.emit(hangUp{id: m.peer.id})
		m.peer.state, m.peer.dead, m.peer.grace = peerIdle, false, false
		return
	case newer: // or another server took over at this address
		m.view = view{record: *l.Record, etag: l.ETag, present: true, seen: now}
	}
	m.peer.state, m.peer.epoch = peerLive, l.Record.Epoch
	m.peer.dead, m.peer.grace = false, false
	m.pollWait = safetyPoll - m.jitter(safetyPoll/4)
}

// peerClosed reports that the peer closed the connection (FIN or RST).
func (m *machine) peerClosed(now instant, id uint64) {
	if !m.peerEnded(id) {
		return
	}
	if !m.peer.grace {
		m.peer.dialed = false // dial again at once
		m.peer.grace, m.peer.closeAt = true, now
	}
	m.decide(now)
}

// peerRefused reports that no process listens at the address.
func (m *machine) peerRefused(now instant, id uint64) {
	if !m.peerEnded(id) {
		return
	}
	m.peer.dead, m.peer.grace = true, false
	m.decide(now)
}

// peerFailed reports that the connection or dial failed in any other way, such as a timeout. It
// says nothing about the holder.
func (m *machine) peerFailed(now instant, id uint64) {
	if m.peerEnded(id) {
		m.decide(now)
	}
}

// peerEnded reports whether id was the current connection, and restores the poll interval of a
// standby without a stream.
func (m *machine) peerEnded(id uint64) bool {
	if m.peer.state == peerIdle || m.peer.id != id {
		return false
	}
	if m.peer.state == peerLive {
		m.pollWait = min(m.pollWait, m.pollInterval())
	}
	m.peer.state = peerIdle
	return true
}
