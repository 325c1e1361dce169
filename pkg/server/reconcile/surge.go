package reconcile

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// surges is the shard's account of the instances beyond the sizes that its groups have
// while they rotate: an edit under many groups is not to double the shard. A group is
// let have what it has already, and what is free. One that would have more waits, and
// those that wait take turns, each with one instance that nobody else is given until it
// has been decided about. It belongs to the deciding goroutine.
type surges struct {
	groups     map[fleet.GroupKey]share
	size, used int                     // sums of the shares
	unseen     map[fleet.GroupKey]bool // what these have of the last leader's term is not known yet; nil: nobody was counted
	queue      []fleet.GroupKey        // those that wait, whose turn is next first
	waits      map[fleet.GroupKey]bool // the same
	turn       map[fleet.GroupKey]bool // those whose turn it is
}

// share is one group's part.
type share struct{ size, used int }

func newSurges() *surges {
	return &surges{groups: map[fleet.GroupKey]share{}, waits: map[fleet.GroupKey]bool{}, turn: map[fleet.GroupKey]bool{}}
}

// recount takes over which groups there are, and drops the others. Nothing is given
// before each of those that were there at first has been decided about once.
func (s *surges) recount(sizes map[fleet.GroupKey]int) {
	for key := range s.groups {
		if _, ok := sizes[key]; !ok {
			s.drop(key)
		}
	}
	first := s.unseen == nil
	if first {
		s.unseen = make(map[fleet.GroupKey]bool, len(sizes))
	}
	for key, size := range sizes {
		s.set(key, share{size: size, used: s.groups[key].used})
		if first {
			s.unseen[key] = true
		}
	}
}

// granted is how many instances beyond its size a group may have now, of limit in all.
func (s *surges) granted(key fleet.GroupKey, limit fleet.Surge) int {
	free := s.free(limit)
	switch {
	case s.turn[key]:
		free++ // the one that is kept for it
	case len(s.queue) > 0: // it is others' turn
		free = 0
	}
	return s.groups[key].used + max(0, free)
}

// free is what nobody has, and what is kept for nobody.
func (s *surges) free(limit fleet.Surge) int {
	if len(s.unseen) > 0 {
		return 0
	}
	return limit.Of(s.size) - s.used - len(s.turn)
}

// decided takes over what was decided about a group, and returns those whose turn it is
// now.
func (s *surges) decided(g fleet.Group, defined bool, d plan.Decision, limit fleet.Surge) []fleet.GroupKey {
	delete(s.turn, g.Key)
	delete(s.unseen, g.Key)
	switch {
	case defined && !g.Removed:
		s.set(g.Key, share{size: g.Size, used: d.Surge})
	case d.Surge > 0:
		s.set(g.Key, share{used: d.Surge})
	default:
		s.drop(g.Key)
	}
	switch {
	case !d.Starved:
		s.leaveQueue(g.Key)
	case !s.waits[g.Key]:
		s.queue = append(s.queue, g.Key)
		s.waits[g.Key] = true
	}
	return s.next(limit)
}

func (s *surges) leaveQueue(key fleet.GroupKey) {
	if s.waits[key] {
		delete(s.waits, key)
		s.queue = slices.DeleteFunc(s.queue, func(k fleet.GroupKey) bool { return k == key })
	}
}

// next gives what is free to those that wait, one for each.
func (s *surges) next(limit fleet.Surge) []fleet.GroupKey {
	n := min(len(s.queue), max(0, s.free(limit)))
	keys := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	for _, key := range keys {
		delete(s.waits, key)
		s.turn[key] = true
	}
	return keys
}

func (s *surges) set(key fleet.GroupKey, to share) {
	was := s.groups[key]
	s.size += to.size - was.size
	s.used += to.used - was.used
	s.groups[key] = to
}

// drop forgets a group that is no more.
func (s *surges) drop(key fleet.GroupKey) {
	s.set(key, share{})
	delete(s.groups, key)
	delete(s.turn, key)
	delete(s.unseen, key)
	s.leaveQueue(key)
}

// countGroups has the account know every group that is defined.
func (l *Loop) countGroups() {
	sizes := map[fleet.GroupKey]int{}
	for _, key := range l.cfg.Groups.Keys() {
		if g, ok := l.cfg.Groups.Group(key); ok && !g.Removed {
			sizes[key] = max(0, g.Size)
		}
	}
	l.surges.recount(sizes)
	l.schedule.mark(l.surges.next(l.tuning.Load().MaxSurge)...)
}
