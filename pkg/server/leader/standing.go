package leader

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// standing are the problems that last and whose end is told. Others are single events,
// of which nobody can say when they are over. The lock of problems guards it.
type standing map[subject]bool

// subject is what a problem that lasts is known by: to be told of it again is no other
// problem.
type subject struct {
	group    fleet.GroupKey
	instance fleet.InstanceID
	reason   string
}

// lasts reports whether the end of a problem of this reason is told.
func lasts(reason string) bool {
	switch reason {
	case reconcile.ReasonLoadBalancer, reconcile.ReasonOrphans, reconcile.ReasonAbsent, delivery.ReasonFiles,
		ReasonConfig, ReasonAwaits, ReasonGroups, ReasonRecordMissing, ReasonStuck, ReasonIdentityShared:
		return true
	default:
		return reconcile.Lasts(reason)
	}
}

// add remembers a problem, if it is one of these.
func (s standing) add(p fleet.Problem) {
	if lasts(p.Reason) {
		s[subject{p.Group, p.Instance, p.Reason}] = true
	}
}

// end tells that problems are no more, and reports whether there were any.
func (s *problems) end(which func(subject) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := slices.DeleteFunc(slices.Collect(maps.Keys(s.standing)), func(x subject) bool { return !which(x) })
	slices.SortFunc(ended, func(a, b subject) int {
		return cmp.Or(a.group.Compare(b.group), cmp.Compare(a.reason, b.reason), cmp.Compare(a.instance, b.instance))
	})
	now := s.cfg.Now()
	for _, x := range ended {
		delete(s.standing, x)
		if x.reason == ReasonIdentityShared {
			delete(s.shared, x.instance)
		}
		s.feed.Publish(fleet.Problem{At: now, Reason: x.reason, Group: x.group, Instance: x.instance, Over: true})
	}
	return len(ended) > 0
}
