package election

import (
	"errors"
	"time"
)

var errCantAct = errors.New("gave the lead to a server that can act")

const (
	// answerWithin is how long an answer is accepted. It exceeds the time a standby may take.
	answerWithin = time.Minute
	// askAtLeastEvery bounds the pause between two questions while no server can act.
	askAtLeastEvery = 5 * time.Minute
	// After a step-down, a server keeps its next term for at least firstCooldown, and twice as
	// long each time it steps down again soon after. So a fault that all servers share does
	// not make them pass the lead on forever.
	firstCooldown   = 10 * time.Minute
	longestCooldown = 6 * time.Hour
)

// stepDown decides when a leader that can't act lets another server lead. It knows only this
// process's history.
type stepDown struct {
	id      uint64 // of the last question
	asked   bool   // since the leader has been blocked
	askedAt instant
	pause   time.Duration // until the next question

	gave     bool
	gaveAt   instant
	cooldown time.Duration // minimum time since gaveAt
}

// pollStandbys reports whether to ask the standbys now whether they could act. lacks is how
// long a need has been unmet, after is the limit; 0: no limit.
func (g *stepDown) pollStandbys(now instant, lacks, after time.Duration) bool {
	switch {
	case after <= 0 || lacks < after:
		g.asked, g.pause = false, 0
		return false
	case g.resting(now), g.asked && now.surelySince(g.askedAt) < g.pause:
		return false
	}
	first := max(after, answerWithin)
	g.pause = min(max(2*g.pause, first), max(first, askAtLeastEvery))
	g.id++
	g.asked, g.askedAt = true, now
	return true
}

// joined schedules the next question earlier: a new server listens that has not received the
// last one.
func (g *stepDown) joined() { g.pause = min(g.pause, answerWithin) }

// accepts reports whether the answer to question id may end the term.
func (g *stepDown) accepts(now instant, id uint64) bool {
	return g.asked && id == g.id && !g.resting(now) && now.surelySince(g.askedAt) <= answerWithin
}

// resting reports whether the last step-down was too recent for another.
func (g *stepDown) resting(now instant) bool { return g.gave && now.surelySince(g.gaveAt) < g.cooldown }

// done records a step-down.
func (g *stepDown) done(now instant) {
	if g.gave && now.surelySince(g.gaveAt) < 2*g.cooldown {
		g.cooldown = min(2*g.cooldown, longestCooldown)
	} else {
		g.cooldown = firstCooldown
	}
	g.gave, g.gaveAt, g.asked, g.pause = true, now, false, 0
}

// Blocked is why a leader can't act, or why it stepped down. The zero value means neither.
type Blocked struct {
	Need  Need
	Asked bool   // standbys were asked whether they could act
	Rests bool   // the last step-down was too recent for another
	To    string // the holder that the lead was given to; empty: none

	// Denied: this server does not lead, because the store refuses to create the election record
	// although none exists. No server can lead until the store accepts it.
	Denied bool
}

// deniedOften is how many refusals in a row are no coincidence: another server may remove the
// record between a refusal and the read.
const deniedOften = 3

// blocked returns the machine's Blocked.
func (m *machine) blocked(now instant) Blocked {
	switch {
	case m.denied >= deniedOften:
		return Blocked{Denied: true}
	case m.gaveUpTo.To != "":
		return m.gaveUpTo
	case m.phase != leading || m.timing.GiveUp <= 0 || m.lack.For < m.timing.GiveUp:
		return Blocked{}
	}
	return Blocked{Need: m.lack.Need, Asked: m.stepDown.asked, Rests: m.stepDown.resting(now)}
}

// pollStandbys asks all listening servers if this leader can't act.
func (m *machine) pollStandbys(now instant) {
	if m.stepDown.pollStandbys(now, m.lack.For, m.timing.GiveUp) {
		m.emit(askPeers{id: m.stepDown.id})
	}
}

// peerJoined reports that another server started to listen.
func (m *machine) peerJoined(now instant) {
	m.stepDown.joined()
	m.decide(now)
}

// gotAnswer is another server's answer. The first one that can act is named in the release, so
// that no other takes the record before it.
func (m *machine) gotAnswer(now instant, a Answer) {
	stuck := m.phase == leading && m.timing.GiveUp > 0 && m.lack.For >= m.timing.GiveUp
	if stuck && a.Ready && a.Leader == m.holder && a.Server != m.holder && m.stepDown.accepts(now, a.Ask) {
		m.stepDown.done(now)
		m.gaveUpTo = Blocked{Need: m.lack.Need, To: a.Server}
		m.successor = a.Server
		m.endTerm(errCantAct)
	}
	m.decide(now)
}

// releaseFor returns how long a release is tried. A server that shuts down has little time;
// for one that can't act, writes may be slow.
func (m *machine) releaseFor() time.Duration {
	if m.successor != "" && !m.quit {
		return m.view.record.LeaseDuration / 2
	}
	return releaseBudget
}

// reserved reports whether a released record is reserved for another server. The reservation
// ends a lease after the record was seen.
func (m *machine) reserved(now instant) bool {
	r := m.view.record
	return r.Successor != "" && r.Successor != m.holder && !m.due(now, m.view.seen, r.LeaseDuration)
}

// proveEvery is the minimum interval between two checks: the maximum duration of one, so that
// they do not overlap.
const proveEvery = proveWithin + 2*answerTimeout

// prove starts a check whether this server could act, for a leader that can't.
func (m *machine) prove(now instant, ask uint64) {
	r := m.view.record
	if m.peer.state != peerLive || r.Released || m.proved && now.surelySince(m.provedAt) < proveEvery {
		return
	}
	m.proved, m.provedAt = true, now
	m.emit(proveReady{leader: r.Holder, addr: r.Addrs.Election, epoch: r.Epoch, ask: ask, window: r.FenceWindow})
}
