package rpc

import (
	"container/list"
	"net/netip"
)

// admission decides which connections may begin their handshakes, which wait and
// which are refused. It knows no connection, no clock and no lock: it counts.
//
// Sources take turns, so that one with many connections waiting delays another
// by one handshake, not by all of its own.
type admission struct {
	limits  HandshakeLimits
	sources map[netip.Prefix]*source // those with a visit
	turns   *list.List               // the sources that wait, whose turn is next first

	running, waiting counts
}

// counts are visits, in all and those of strangers.
type counts struct{ all, strangers int }

func (c *counts) add(n int, stranger bool) {
	c.all += n
	if stranger {
		c.strangers += n
	}
}

// source is where connections come from.
type source struct {
	prefix        netip.Prefix
	running       int
	authenticated int           // established connections
	queue         *list.List    // of visits, the oldest first
	turn          *list.Element // in turns; nil while nothing waits
}

type visitState int

const (
	gone    visitState = iota // refused, closed, or not yet judged
	waiting                   // for its handshake to begin
	running                   // its handshake is in progress
	settled                   // its handshake succeeded
)

// visit is one connection, from its arrival to its end.
type visit struct {
	source   netip.Prefix // invalid for all those whose transport names no address
	instance bool         // its exact address is an instance's
	begin    func()       // called when its turn has come after it waited

	state         visitState
	stranger      bool // how it was counted, in the present state
	authenticated bool
	place         *list.Element // in its source's queue
}

// verdict is what becomes of a connection that arrives.
type verdict int

const (
	refused verdict = iota
	waits
	admitted
)

func newAdmission(limits HandshakeLimits) *admission {
	return &admission{limits: limits, sources: make(map[netip.Prefix]*source), turns: list.New()}
}

// arrive judges a new visit.
func (a *admission) arrive(v *visit) verdict {
	s := a.sources[v.source]
	if s == nil {
		s = &source{prefix: v.source, queue: list.New()}
	}
	switch {
	case a.mayRun(v, s):
		a.sources[v.source] = s
		a.run(v, s)
		return admitted
	case a.mayWait(v, s):
		a.sources[v.source] = s
		a.wait(v, s)
		return waits
	}
	return refused
}

func (v *visit) known(s *source) bool { return v.instance || s.authenticated > 0 }

func (a *admission) isKnown(v *visit) bool {
	s := a.sources[v.source]
	return v.instance || s != nil && s.authenticated > 0
}

func (a *admission) mayRun(v *visit, s *source) bool {
	l := a.limits
	switch {
	case a.running.all >= l.Total:
		return false
	case v.known(s):
		if a.running.all < l.Total-l.Total/4 {
			return s.running < l.PerKnownSource
		}
		return s.running < min(l.PerKnownSource, knownSourceFactor*l.PerSource)
	default:
		return s.running < l.PerSource && a.running.strangers < l.Strangers
	}
}

func (a *admission) mayWait(v *visit, s *source) bool {
	most := a.limits.Waiting
	return a.waiting.all < most && s.queue.Len() < max(1, most/4) && (v.known(s) || a.waiting.strangers < most-most/4)
}

func (a *admission) run(v *visit, s *source) {
	v.state, v.stranger = running, !v.known(s)
	a.running.add(1, v.stranger)
	s.running++
}

func (a *admission) wait(v *visit, s *source) {
	v.state, v.stranger, v.place = waiting, !v.known(s), s.queue.PushBack(v)
	a.waiting.add(1, v.stranger)
	if s.turn == nil {
		s.turn = a.turns.PushBack(s)
	}
}

// next begins the handshake whose turn it is and returns its visit; nil when
// there is no room for any of those who wait.
func (a *admission) next() *visit {
	for turn := a.turns.Front(); turn != nil; turn = turn.Next() {
		s := turn.Value.(*source) //nolint:forcetypeassert // the list holds nothing else
		v := s.queue.Front().Value.(*visit)
		if !a.mayRun(v, s) {
			continue
		}
		a.turns.MoveToBack(turn)
		a.dequeue(v, s)
		a.run(v, s)
		return v
	}
	return nil
}

func (a *admission) dequeue(v *visit, s *source) {
	s.queue.Remove(v.place)
	v.place = nil
	a.waiting.add(-1, v.stranger)
	if s.queue.Len() == 0 {
		a.turns.Remove(s.turn)
		s.turn = nil
	}
}

// settle moves a visit from the handshakes to the established connections.
func (a *admission) settle(v *visit, authenticated bool) {
	if v.state != running {
		return
	}
	s := a.sources[v.source]
	a.running.add(-1, v.stranger)
	s.running--
	v.state, v.authenticated = settled, authenticated
	if authenticated {
		s.authenticated++
	}
	a.forget(s)
}

// leave ends a visit. To leave twice is to leave once.
func (a *admission) leave(v *visit) {
	s := a.sources[v.source]
	switch v.state {
	case waiting:
		a.dequeue(v, s)
	case running:
		a.running.add(-1, v.stranger)
		s.running--
	case settled:
		if v.authenticated {
			s.authenticated--
		}
	case gone:
	}
	v.state = gone
	if s != nil {
		a.forget(s)
	}
}

func (a *admission) forget(s *source) {
	if s.running == 0 && s.authenticated == 0 && s.queue.Len() == 0 {
		delete(a.sources, s.prefix)
	}
}
