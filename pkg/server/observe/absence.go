package observe

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/plan"
)

// smallShard is the number of records up to which all are counted each time.
const smallShard = 20

// Roll counts the instances for census.Weigh, and returns the absent ones whose agents are
// connected, sorted. records is the number of records at the last census. If none is absent, or
// all absent are silent and awaited is false, it returns early, with a zero Roll.
func (s *State) Roll(records int, awaited bool) (r census.Roll, connected []fleet.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.absent) == 0 || !awaited && !s.absentConnected() {
		return census.Roll{}, nil
	}
	r.Records = records
	for id := range s.absent {
		i, ok := s.records.Get(id)
		if !ok || !i.Phase.Active() && i.Phase != fleet.Draining {
			continue
		}
		r.Absent++
		if s.instances[id].health.Connected {
			connected = append(connected, id)
		}
	}
	r.Connected = len(connected)
	slices.Sort(connected)
	// The last census may be stale, and counts those that are being deleted, which are most of a
	// small shard at times.
	if r.Exceeds() || records <= smallShard {
		r.Records, r.Found = s.found()
	}
	return r, connected
}

// absentConnected reports whether the agent of an absent VM is connected.
func (s *State) absentConnected() bool {
	for id := range s.absent {
		if s.instances[id].health.Connected {
			return true
		}
	}
	return false
}

// found counts the active and draining instances, and those of them whose VM the provider shows.
func (s *State) found() (records, found int) {
	for _, r := range s.records.Instances() {
		if !r.Phase.Active() && r.Phase != fleet.Draining {
			continue
		}
		records++
		if i := s.instances[r.ID]; i != nil && i.vm == plan.VMAlive && !i.absent() {
			found++
		}
	}
	return records, found
}
