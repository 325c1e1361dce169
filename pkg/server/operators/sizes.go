package operators

import (
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Sizes are the numbers of a group's status.
type Sizes struct {
	Wanted   int
	Actual   int
	UpToDate int  // of Actual
	Ready    bool // the condition Ready is true
}

// Sizes counts a group's instances as its status does.
func (s Shard) Sizes(key fleet.GroupKey) Sizes {
	g, _ := s.Groups.Group(key)
	st, waits := &nstancev1.GroupStatus{Size: int32(g.Size)}, unready{}
	for _, i := range s.Instances.Group(key) {
		waits.count(st, i, s.Health(i.ID), g)
	}
	return Sizes{
		Wanted: g.Size, Actual: int(st.GetActualSize()), UpToDate: int(st.GetUpToDateSize()),
		Ready: waits.readiness(st).GetStatus() == conditionTrue,
	}
}

// Watches returns the number of open watches.
func (s *Service) Watches() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	return s.streams.open[[2]string{}]
}
