package reconcile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/problems"
)

// An object that can't be decoded as a record still claims its VM: the VM is no
// orphan, holds nothing up and is not changed. While it lives it counts towards the
// size of the group in its tags, so that it is not replaced and the rest of the
// group is reconciled as usual. If an object does not name its instance, any orphan
// may be its VM, so no orphan is deleted.

func (s *sweeper) claims() census.Claims { return census.ClaimsOf(s.ledger.Malformed()) }

// claim stores the VMs that only a malformed object claims, and marks their groups if these
// changed.
func (s *sweeper) claim(vms []provider.VM) {
	claimed := make(map[fleet.InstanceID]fleet.GroupKey, len(vms))
	for _, vm := range vms {
		if vm.State.Alive() {
			claimed[vm.ID] = census.Group(vm)
		}
	}
	s.mu.Lock()
	old := s.claimed
	s.claimed = claimed
	s.mu.Unlock()
	if !maps.Equal(old, claimed) {
		s.schedule.Mark(slices.Collect(maps.Values(old))...)
		s.schedule.Mark(slices.Collect(maps.Values(claimed))...)
	}
}

// filled returns how many claimed VMs count towards a group's size. A VM whose record can be
// read again does not.
func (s *sweeper) filled(key fleet.GroupKey, recorded func(fleet.InstanceID) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for id, of := range s.claimed {
		if of == key && !recorded(id) {
			n++
		}
	}
	return n
}

// reportMalformed reports every malformed object that was not reported yet.
func (s *sweeper) reportMalformed() {
	reported := map[string]bool{}
	for _, m := range s.ledger.Malformed() {
		reported[m.Key] = true
		if !s.reported[m.Key] {
			s.reports.report(problemOf(m))
		}
	}
	s.reported = reported
}

func problemOf(m fleet.Malformed) *fleet.Problem {
	outcome := "its instance is unknown, so no VM without a record is deleted"
	if m.ID != "" {
		outcome = fmt.Sprintf("the object and the VM of instance %s are not changed", m.ID)
	}
	what, until := "is not a valid instance record", "the object is restored or removed"
	if m.Refused {
		what, until = "can't be read", "the store returns it, or it is removed"
	}
	return &fleet.Problem{
		Reason: problems.ReasonMalformed, Instance: m.ID,
		Message: fmt.Sprintf("object %.300q %s: %v; %s until %s", m.Key, what, m.Err, outcome, until),
	}
}
