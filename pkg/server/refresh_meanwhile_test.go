package server_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// dbKept is a shard whose group db would continue by its record without a definition. lose resets
// that record externally.
func dbKept(t *testing.T) (s *site, p *process, lose func()) {
	t.Helper()
	s, p = runningTwo(t, calm)
	p.set(&nstancev1.UpsertGroupRequest{Key: "db", Size: ptr(int32(2))})
	time.Sleep(time.Minute)
	s.world.ForgetCalls()
	return s, p, func() { s.put(groupAt("default", "db"), `{ "deleted_at": "2026-03-01T12:00:00Z", "revision": 99 }`) }
}

// TestRecordIsGoneDuringARefresh: a group that was to continue by its record, which is found to be
// reset when it is written, is asked about like one without a record.
func TestRecordIsGoneDuringARefresh(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, lose := dbKept(t)
		machines, accepted := s.living(), s.accepted()
		lose() // which the leader has not read yet
		s.groupsBecome(onlyWeb)
		_, err := p.refresh()
		refused(t, err, codes.FailedPrecondition, "default/db", "deletes 2 instances")
		time.Sleep(time.Minute)
		s.keptAll("after the refresh", machines)
		if s.accepted() != accepted {
			t.Error("it was kept as accepted")
		}
	})
}

// TestRecordIsGoneDuringATakeover: as during a refresh.
func TestRecordIsGoneDuringATakeover(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, lose := dbKept(t)
		machines, accepted, lost := s.living(), s.accepted(), false
		s.groupsBecome(onlyWeb)
		p.ends()
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if !lost && r.Verb == object.VerbPut && r.Key == groupAt("default", "db") {
				lost = true
				lose()
			}
			return objecttest.Outcome{}
		})
		q := s.successor()
		time.Sleep(time.Minute)
		s.keptAll("after the takeover", machines)
		if s.accepted() != accepted || !lost {
			t.Errorf("it was kept as accepted, lost %v", lost)
		}
		q.awaitsConfirmation("default/db")
	})
}
