// Package surge shares out how many instances beyond its size a shard may have while its groups
// rotate. It uses no clock, and nothing but what it is told.
package surge

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Budget enforces the shard's MaxSurge over all groups that rotate, so that an edit that affects
// many groups does not double the shard. A group may have the surge that it uses already, plus
// what is free. Groups that want more wait in a queue; in its turn a group has one instance
// reserved until it has been decided about. It is not safe for concurrent use.
type Budget struct {
	groups     map[fleet.GroupKey]share
	size, used int                     // sums of the shares
	unseen     map[fleet.GroupKey]bool // groups not decided about in this term, so their use is unknown; nil: not counted yet
	queue      []fleet.GroupKey        // waiting groups, next first
	waits      map[fleet.GroupKey]bool // the set of queue
	turn       map[fleet.GroupKey]bool // groups with a reserved instance
}

// share is one group's size and used surge.
type share struct{ size, used int }

// New returns a Budget without groups.
func New() *Budget {
	return &Budget{groups: map[fleet.GroupKey]share{}, waits: map[fleet.GroupKey]bool{}, turn: map[fleet.GroupKey]bool{}}
}

// Recount sets the groups and their sizes, drops the others, and returns the groups whose turn it
// is now. No surge is free until each group of the first call has been decided about once.
func (s *Budget) Recount(sizes map[fleet.GroupKey]int, limit fleet.Surge) []fleet.GroupKey {
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
	return s.next(limit)
}

// Granted returns how many instances beyond its size a group may have now, given the shard's
// limit.
func (s *Budget) Granted(key fleet.GroupKey, limit fleet.Surge) int {
	free := s.free(limit)
	switch {
	case s.turn[key]:
		free++ // its reserved instance
	case len(s.queue) > 0: // others are first
		free = 0
	}
	return s.groups[key].used + max(0, free)
}

// free returns how much of the limit is neither used nor reserved.
func (s *Budget) free(limit fleet.Surge) int {
	if len(s.unseen) > 0 {
		return 0
	}
	return limit.Of(s.size) - s.used - len(s.turn)
}

// Decided records a decision about a group, and returns the groups whose turn it is now.
func (s *Budget) Decided(g fleet.Group, defined bool, d plan.Decision, limit fleet.Surge) []fleet.GroupKey {
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

func (s *Budget) leaveQueue(key fleet.GroupKey) {
	if s.waits[key] {
		delete(s.waits, key)
		s.queue = slices.DeleteFunc(s.queue, func(k fleet.GroupKey) bool { return k == key })
	}
}

// next reserves free instances for waiting groups, one each, and returns these groups.
func (s *Budget) next(limit fleet.Surge) []fleet.GroupKey {
	n := min(len(s.queue), max(0, s.free(limit)))
	keys := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	for _, key := range keys {
		delete(s.waits, key)
		s.turn[key] = true
	}
	return keys
}

func (s *Budget) set(key fleet.GroupKey, to share) {
	was := s.groups[key]
	s.size += to.size - was.size
	s.used += to.used - was.used
	s.groups[key] = to
}

// drop forgets a group.
func (s *Budget) drop(key fleet.GroupKey) {
	s.set(key, share{})
	delete(s.groups, key)
	delete(s.turn, key)
	delete(s.unseen, key)
	s.leaveQueue(key)
}
