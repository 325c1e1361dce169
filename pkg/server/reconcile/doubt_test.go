package reconcile_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// TestCreateOfAnInstanceWhoseEndMayBeRecorded: the write that ends it is durable, but its reply
// is lost; then the group needs the instance again.
func TestCreateOfAnInstanceWhoseEndMayBeRecorded(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.world.FailNext(fake.OpCreate, 30, fake.Fault{Err: fake.ErrLost})
		s.size(web, 1)
		s.lead()
		pass(3500 * time.Millisecond)
		id := s.records(web, fleet.Pending)[0]
		before := len(s.world.CreateCalls(id))
		s.bucket.fail = func(op string, _ fleet.InstanceID) (bool, error) { return true, failOnly(op, "update-deleting") }
		s.size(web, 0)
		pass(time.Millisecond)
		s.expectPhase(id, fleet.Deleting)
		s.bucket.fail = nil
		s.world.Mend()
		s.size(web, 1)
		pass(2 * time.Minute)
		if n := len(s.world.CreateCalls(id)); n != before {
			t.Errorf("%d creates more of an instance that goes", n-before)
		}
		s.expectPhase(id, fleet.Deleted)
		s.expectRunning(web, 1)
	})
}

func failOnly(op, kind string) error {
	if op == kind {
		return errStoreDown
	}
	return nil
}
