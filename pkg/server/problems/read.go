package problems

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/broadcast"
)

// Lasting returns the problems of a group, or with the zero key of the shard, that last, in the
// order in which they were last set.
func (s *Set) Lasting(key fleet.GroupKey) []fleet.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inOrder(slices.Collect(maps.Values(s.lasting[key])))
}

// Get returns the problem of a subject; ok is false if it has none that lasts.
func (s *Set) Get(x Subject) (p fleet.Problem, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok = s.lasting[x.Group][x]
	return p, ok
}

// Event returns the last event of a group, or with the zero key of the shard; zero if there is
// none that is not over.
func (s *Set) Event(key fleet.GroupKey) fleet.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[key]
}

// Groups returns the groups that have problems, sorted.
func (s *Set) Groups() []fleet.GroupKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.AppendSeq(slices.Collect(maps.Keys(s.lasting)), maps.Keys(s.events))
	keys = slices.DeleteFunc(keys, func(key fleet.GroupKey) bool { return key == fleet.GroupKey{} })
	slices.SortFunc(keys, fleet.GroupKey.Compare)
	return slices.Compact(keys)
}

// Reasons returns the number of lasting problems of each reason.
func (s *Set) Reasons() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, of := range s.lasting {
		for x := range of {
			n[x.Reason]++
		}
	}
	return n
}

// Has reports whether a group has problems.
func (s *Set) Has(key fleet.GroupKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, event := s.events[key]
	return event || len(s.lasting[key]) > 0
}

// Follow subscribes a reader to the problems that match. It first gets those in the set, events
// included that are not over, and then each as it is set or cleared. At most pending of them may
// wait for it.
func (s *Set) Follow(matches, over func(fleet.Problem) bool, pending int) *broadcast.Reader[fleet.Problem] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first []fleet.Problem
	for _, of := range s.lasting {
		first = slices.AppendSeq(first, maps.Values(of))
	}
	for _, p := range s.events {
		if !over(p) {
			first = append(first, p)
		}
	}
	first = inOrder(slices.DeleteFunc(first, func(p fleet.Problem) bool { return !matches(p) }))
	return s.feed.Subscribe(matches, first, pending)
}

func inOrder(all []fleet.Problem) []fleet.Problem {
	slices.SortFunc(all, func(a, b fleet.Problem) int {
		return cmp.Or(a.At.Compare(b.At), subjectOf(a).compare(subjectOf(b)))
	})
	return all
}
