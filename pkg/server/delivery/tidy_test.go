package delivery_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// TestTidy: nothing is kept of agents that have disconnected, of a removed group with a
// problem, and of its sources; the problem is kept while the group exists.
func TestTidy(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		f.noLog = errDown
		a := f.connected("default")
		a.receivesNothing()
		f.mu.Lock()
		f.noLog = nil
		f.mu.Unlock()
		for range 50 {
			b := f.connected("prod")
			b.received()
			for range 3 { // so that sets are pushed again
				b.disk = map[string][]byte{}
				b.report()
				b.received()
			}
			b.disconnect()
		}
		a.disconnect()
		if n := f.d.Entries(); n < 50 {
			t.Fatalf("%d entries: this shows nothing", n)
		}
		time.Sleep(time.Hour)
		f.d.Tidy(func(fleet.GroupKey) bool { return false })
		if n := f.d.Entries(); n != 1 {
			t.Errorf("%d entries are left, want that of the group's problem", n)
		}
		f.d.Tidy(func(fleet.GroupKey) bool { return true })
		if n := f.d.Entries(); n != 0 {
			t.Errorf("%d entries are left when the group is gone", n)
		}
	})
}
