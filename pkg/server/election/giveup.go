package election

import (
	"errors"
	"time"
)

var errCantAct = errors.New("gave the lead to a server that can act")

const (
	// answerWithin is how long the answer to a question counts. It is longer than
	// a standby may take for it.
	answerWithin = time.Minute
	// askAtLeastEvery bounds the pause between two questions while nobody can act.
	askAtLeastEvery = 5 * time.Minute
	// After it gave up the lead a server keeps the next one for firstRest at least,
	// whatever happens, and for twice as long each time that it gives up again soon
	// after. So a fault that all servers share makes none of them pass the lead on
	// and on.
	firstRest   = 10 * time.Minute
	longestRest = 6 * time.Hour
)

// giveUp decides when a leader that can't act lets another server lead. It knows
// this process's own past only.
type giveUp struct {
	id      uint64 // of the last question
	asked   bool   // in the plight that lasts
	askedAt instant
	pause   time.Duration // until the next question

	gave   bool
	gaveAt instant
	rest   time.Duration // no other time until this has passed since
}

// ask reports whether standbys are to be asked now whether they could act. lacks
// is for how long something needed did not come about, after is the limit of it;
// 0: none.
func (g *giveUp) ask(now instant, lacks, after time.Duration) bool {
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

// joined has the next question come sooner: somebody listens who has not heard the
// last one.
func (g *giveUp) joined() { g.pause = min(g.pause, answerWithin) }

// accepts reports whether the answer to question id may end the term.
func (g *giveUp) accepts(now instant, id uint64) bool {
	return g.asked && id == g.id && !g.resting(now) && now.surelySince(g.askedAt) <= answerWithin
}

// resting reports whether this server gave up too recently to do it again.
func (g *giveUp) resting(now instant) bool { return g.gave && now.surelySince(g.gaveAt) < g.rest }

// done notes that the lead is given up.
func (g *giveUp) done(now instant) {
	if g.gave && now.surelySince(g.gaveAt) < 2*g.rest {
		g.rest = min(2*g.rest, longestRest)
	} else {
		g.rest = firstRest
	}
	g.gave, g.gaveAt, g.asked, g.pause = true, now, false, 0
}

// Plight is what keeps a leader from acting, or why it gave up the lead. The zero
// value: nothing does.
type Plight struct {
	Need  Need
	Asked bool   // others were asked whether they could act
	Rests bool   // it gave up too recently to do it again
	To    string // the holder that the lead was given up to; empty: it was not

	// Denied: this server does not lead, as the store refuses to make the election
	// record, and finds none. No server leads until the store lets go of what it keeps.
	Denied bool
}

// deniedOften is how many refusals in a row are no coincidence: between one refusal and
// its read another server may have removed the record.
const deniedOften = 3

// plight is what the machine would tell of itself.
func (m *machine) plight(now instant) Plight {
	switch {
	case m.denied >= deniedOften:
		return Plight{Denied: true}
	case m.gaveUpTo.To != "":
		return m.gaveUpTo
	case m.phase != leading || m.timing.GiveUp <= 0 || m.lack.For < m.timing.GiveUp:
		return Plight{}
	}
	return Plight{Need: m.lack.Need, Asked: m.giveUp.asked, Rests: m.giveUp.resting(now)}
}

// askOthers asks whoever listens, when this leader can't act.
func (m *machine) askOthers(now instant) {
	if m.giveUp.ask(now, m.lack.For, m.timing.GiveUp) {
		m.emit(askPeers{id: m.giveUp.id})
	}
}

// peerJoined says that another server began to listen.
func (m *machine) peerJoined(now instant) {
	m.giveUp.joined()
	m.decide(now)
}

// gotAnswer is another server's answer to a question of ours. The first that can
// act is named in the release, so that no other takes the record before it.
func (m *machine) gotAnswer(now instant, a Answer) {
	stuck := m.phase == leading && m.timing.GiveUp > 0 && m.lack.For >= m.timing.GiveUp
	if stuck && a.Ready && a.Leader == m.holder && a.Server != m.holder && m.giveUp.accepts(now, a.Ask) {
		m.giveUp.done(now)
		m.gaveUpTo = Plight{Need: m.lack.Need, To: a.Server}
		m.successor = a.Server
		m.endTerm(errCantAct)
	}
	m.decide(now)
}

// releaseFor is how long a release is tried. A server that goes down has no time;
// one that can't act may be so because its writes are slow.
func (m *machine) releaseFor() time.Duration {
	if m.successor != "" && !m.quit {
		return m.view.record.LeaseDuration / 2
	}
	return releaseBudget
}

// reserved reports whether a released record is for another server to take. It is
// anybody's again a lease after it was seen.
func (m *machine) reserved(now instant) bool {
	r := m.view.record
	return r.Successor != "" && r.Successor != m.holder && !m.due(now, m.view.seen, r.LeaseDuration)
}

// proveEvery is the least time between two proofs of ours: what one takes at most,
// so that there is one at a time.
const proveEvery = proveWithin + 2*answerTimeout

// prove has this server find out whether it could act, for a leader that can't.
func (m *machine) prove(now instant, ask uint64) {
	r := m.view.record
	if m.peer.state != peerLive || r.Released || m.proved && now.surelySince(m.provedAt) < proveEvery {
		return
	}
	m.proved, m.provedAt = true, now
	m.emit(proveReady{leader: r.Holder, addr: r.Addrs.Election, epoch: r.Epoch, ask: ask, window: r.FenceWindow})
}
