package reconcile_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// unread is a group of three and an on-demand instance, with a drain timeout of an hour, whose new leader
// can't read the record of the last managed one by its key.
func unread(s *shard) (managed []fleet.InstanceID, single fleet.InstanceID) {
	s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.DrainTimeout = 3, time.Hour })
	s.lead()
	single = s.demand(web)
	pass(time.Minute)
	managed = s.expectManaged(web, 3)
	if err := s.stop(); err != nil {
		s.t.Fatal(err)
	}
	s.bucket.unreadable = map[fleet.InstanceID]bool{managed[2]: true}
	s.lead()
	pass(time.Minute)
	return managed, single
}

// TestUnreadRecordHolds: while a record of the group can't be read, nothing is taken that goes because others
// work; a notice, a request for itself and a death count at once.
func TestUnreadRecordHolds(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		managed, single := unread(s)
		s.size(web, 2)
		pass(5 * time.Minute)
		for _, id := range managed {
			s.expectPhase(id, fleet.Running)
		}
		if said := s.reported("StorageError"); len(said) != 1 {
			t.Errorf("reported %v, want one", said)
		}
		s.term.AgentReport(managed[0], announced(time.Now().Add(2*time.Minute)))
		s.askOut(single)
		s.world.Kill(managed[1])
		pass(time.Minute)
		s.expectPhase(managed[0], fleet.Draining)
		s.expectPhase(single, fleet.Draining)
		s.expectPhase(managed[1], fleet.Deleting, fleet.Deleted)
		s.size(web, 1)
		pass(5 * time.Minute)
		s.expectPhase(managed[2], fleet.Running)
		s.bucket.mu.Lock()
		s.bucket.unreadable = nil
		s.bucket.mu.Unlock()
		pass(time.Minute)
		if n := len(s.running(web)); n != 1 {
			t.Errorf("%d run once all is read, want 1", n)
		}
	})
}
