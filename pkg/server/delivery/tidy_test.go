package delivery_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// TestTidy: of agents that came and went, of a group that had a problem and is gone,
// and of what its files were made from, nothing is kept; but while the group is there
// its problem is.
func TestTidy(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, s *site) {
		s.noLog = errDown
		a := s.connected("default")
		a.receivesNothing()
		s.mu.Lock()
		s.noLog = nil
		s.mu.Unlock()
		for range 50 {
			b := s.connected("prod")
			b.received()
			for range 3 { // so that sets are pushed again
				b.disk = map[string][]byte{}
				b.report()
				b.received()
			}
			b.disconnect()
		}
		a.disconnect()
		if n := s.d.Entries(); n < 50 {
			t.Fatalf("%d entries: this shows nothing", n)
		}
		time.Sleep(time.Hour)
		s.d.Tidy(func(fleet.GroupKey) bool { return false })
		if n := s.d.Entries(); n != 1 {
			t.Errorf("%d entries are left, want that of the group's problem", n)
		}
		s.d.Tidy(func(fleet.GroupKey) bool { return true })
		if n := s.d.Entries(); n != 0 {
			t.Errorf("%d entries are left when the group is gone", n)
		}
	})
}
