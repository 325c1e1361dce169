package rpc

import (
	"container/list"
	"net/netip"
)

// admission decides which connections may start their handshakes, which wait and which are
// refused. It only counts: it uses no connections, clock or locks.
//
// Sources take turns, so that a source with many waiting connections delays another by one
// handshake, not by all of its own.
type admission struct {
	limits  HandshakeLimits
	sources map[netip.Prefix]*source // those with a visit
	turns   *list.List               // sources with waiting visits, the next one first

	running, waiting counts
}

// counts are numbers of visits: all, and those of strangers.
type counts struct{ all, strangers int }

func (c *counts) add(n int, stranger bool) {
	c.all += n
	if stranger {
		c.strangers += n
	}
}

// source is an origin of connections.
type source struct {
	prefix        netip.Prefix
	running       int
	authenticated int           // established connections
	queue         *list.List    // of visits, oldest first
	turn          *list.Element // in turns; nil while nothing waits
}

type visitState int

const (
	gone    visitState = iota // refused, closed, or not yet decided
	waiting                   // queued
	running                   // handshake in progress
	settled                   // handshake succeeded
)

// visit is one connection, from arrival to close.
type visit struct {
	source   netip.Prefix // invalid if the transport has no address
	instance bool         // the exact address is an instance's
	begin    func()       // called when its turn comes after waiting

	state         visitState
	stranger      bool // how it was counted in the current state
	authenticated bool
	place         *list.Element // in its source's queue
}

// verdict is the decision on a new connection.
type verdict int

const (
	refused verdict = iota
	waits
	admitted
)

func newAdmission(limits HandshakeLimits) *admission {
	return &admission{limits: limits, sources: make(map[netip.Prefix]*source), turns: list.New()}
}

// arrive decides about a new visit.
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

// next starts the handshake that is next and returns its visit; nil if none of the waiting
// ones has room.
func (a *admission) next() *visit {
	for turn := a.turns.Front(); turn != nil; turn = turn.Next() {
		s := turn.Value.(*source) //nolint:forcetypeassert // the list holds only sources
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

// establish moves a visit from handshakes to established connections.
func (a *admission) establish(v *visit, authenticated bool) {
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

// leave ends a visit. Idempotent.
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
