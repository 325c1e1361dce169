package reconcile_test

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/problems"
)

// recordedProblems is a set of problems whose shard remembers each call.
type recordedProblems struct {
	set *problems.Set
	s   *shard
}

func (r recordedProblems) Set(p fleet.Problem) {
	r.s.mu.Lock()
	r.s.problems = append(r.s.problems, p)
	r.s.mu.Unlock()
	r.set.Set(p)
}

func (r recordedProblems) Clear(key fleet.GroupKey, id fleet.InstanceID, reason string) {
	r.s.mu.Lock()
	if key == (fleet.GroupKey{}) {
		r.s.settled = append(r.s.settled, reason)
	} else {
		r.s.cleared[reason] = append(r.s.cleared[reason], key)
	}
	r.s.mu.Unlock()
	r.set.Clear(key, id, reason)
}

// lasting are the problems of the shard and of all groups that last.
func (m *term) lasting() (all []fleet.Problem) {
	for _, key := range append(m.problems.Groups(), fleet.GroupKey{}) {
		all = append(all, m.problems.Lasting(key)...)
	}
	return all
}

// held is what keeps the loop from acting; zero while it acts.
func (m *term) held() fleet.Problem {
	ofShard := m.problems.Lasting(fleet.GroupKey{})
	if n := slices.IndexFunc(ofShard, func(p fleet.Problem) bool { return p.Blocks }); n >= 0 {
		return ofShard[n]
	}
	return fleet.Problem{}
}
