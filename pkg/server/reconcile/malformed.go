package reconcile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// An object that can't be understood as a record still claims a VM, so that VM
// is left alone: it is no orphan, it holds up nothing, and nothing is done to
// it. As long as it lives it fills a place of the group that its tags name, so
// that no replacement is made for it and the rest of the group is run as usual.
// When an object does not even tell its instance, any orphan may be its VM, and
// no orphan is deleted.

// ReasonMalformed is the reason of a problem with such an object. Each is
// reported once.
const ReasonMalformed = "RecordMalformed"

// claims is what the malformed objects speak of.
type claims struct {
	ids      map[fleet.InstanceID]bool
	nameless bool // there is one that does not tell its instance
}

func (s *sweeper) claims() claims {
	c := claims{ids: map[fleet.InstanceID]bool{}}
	for _, m := range s.cfg.Ledger.Malformed() {
		if m.ID == "" {
			c.nameless = true
		} else {
			c.ids[m.ID] = true
		}
	}
	return c
}

// claim remembers the VMs that only a malformed object speaks of, and has their
// groups decided anew when that changed.
func (s *sweeper) claim(vms []provider.VM) {
	claimed := make(map[fleet.InstanceID]fleet.GroupKey, len(vms))
	for _, vm := range vms {
		if vm.State.Alive() {
			claimed[vm.ID] = groupOfTags(vm)
		}
	}
	s.mu.Lock()
	old := s.claimed
	s.claimed = claimed
	s.mu.Unlock()
	if !maps.Equal(old, claimed) {
		s.schedule.mark(slices.Collect(maps.Values(old))...)
		s.schedule.mark(slices.Collect(maps.Values(claimed))...)
	}
}

// filled is how many places of a group claimed VMs fill. One of which there is a
// record, because it can be read again, fills none of them.
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
	for _, m := range s.cfg.Ledger.Malformed() {
		reported[m.Key] = true
		if !s.reported[m.Key] {
			s.report(problemOf(m))
		}
	}
	s.reported = reported
}

func problemOf(m fleet.Malformed) *fleet.Problem {
	outcome := "whatever VM it speaks of is left alone, and no VM without a record is deleted"
	if m.ID != "" {
		outcome = fmt.Sprintf("it and the VM of instance %s are left alone", m.ID)
	}
	return &fleet.Problem{
		Reason: ReasonMalformed, Instance: m.ID,
		Message: fmt.Sprintf("the object %.300q can't be understood as the record of an instance: %v; "+
			"%s until the object is restored or removed", m.Key, m.Err, outcome),
	}
}
