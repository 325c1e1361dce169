package shardtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// settleStep is the interval at which a shard is checked while it settles.
const settleStep = 5 * time.Second

// Converge waits until the shard is as desired twice in a row, with the same instances: one
// leader, every group at its size and up to date, every agent connected, no machine without a
// record and no record without a machine. After the given time it returns what is still wrong.
func (s *Shard) Converge(within time.Duration) error {
	deadline := time.Now().Add(within)
	var before map[fleet.InstanceID]fleet.Phase
	for {
		err := s.converged()
		now := s.members()
		same := before != nil && maps.Equal(before, now)
		if before = now; err != nil {
			before = nil
		}
		if err == nil && same {
			s.Timeline.Say("driver", "the shard has settled")
			return nil
		}
		if err != nil && time.Now().After(deadline) {
			s.Timeline.Say("driver", "the shard has not settled: %v", err)
			return fmt.Errorf("the shard has not settled within %s: %s", within, s.Timeline.Name(err.Error()))
		}
		time.Sleep(settleStep)
	}
}

func (s *Shard) converged() error {
	s.operator.idle()
	groups, err := s.operator.groups(settleStep)
	if err != nil {
		return fmt.Errorf("no server leads: %w", err)
	}
	var wrong []string
	for _, g := range groups {
		if g.GetActualSize() != g.GetSize() || g.GetPendingSize() != 0 || g.GetDrainingSize() != 0 {
			wrong = append(wrong, fmt.Sprintf("group %s has size %d but %d instances, %d pending, %d draining",
				g.GetKey(), g.GetSize(), g.GetActualSize(), g.GetPendingSize(), g.GetDrainingSize()))
		} else if g.GetUpToDateSize() != g.GetSize() {
			wrong = append(wrong, fmt.Sprintf("group %s has size %d but %d up to date", g.GetKey(), g.GetSize(), g.GetUpToDateSize()))
		}
	}
	wrong = append(wrong, s.disagreements()...)
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// disagreements returns the records without a machine, the machines without a record, and the
// agents that do not report.
func (s *Shard) disagreements() (wrong []string) {
	made := map[fleet.InstanceID]bool{}
	for _, vm := range s.world.VMs() {
		if vm.State.Exists() {
			made[vm.ID] = true
		}
	}
	for _, i := range s.book.instances() {
		switch i.Phase {
		case fleet.Running:
			if !made[i.ID] {
				wrong = append(wrong, fmt.Sprintf("%s is %s but has no machine", i.ID, i.Phase))
			}
			if i.RemovalAskedAt != nil {
				wrong = append(wrong, fmt.Sprintf("%s is to be removed but is %s", i.ID, i.Phase))
			}
			delete(made, i.ID)
		case fleet.Deleted:
		default:
			wrong = append(wrong, fmt.Sprintf("%s is %s", i.ID, i.Phase))
			delete(made, i.ID)
		}
	}
	for id := range made {
		wrong = append(wrong, fmt.Sprintf("%s has a machine but no record", id))
	}
	slices.Sort(wrong)
	s.mu.Lock()
	if s.taking > 0 {
		wrong = append(wrong, fmt.Sprintf("%d machines are about to be interrupted", s.taking))
	}
	s.mu.Unlock()
	return append(wrong, s.operator.silent()...)
}
