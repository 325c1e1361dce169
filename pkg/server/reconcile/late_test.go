package reconcile_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// looksTwice is groups that know what an instance shows of its group only once its record is known.
// Meanwhile appear makes it known, after the group was read.
type looksTwice struct {
	*wanted

	known  func() bool
	appear atomic.Pointer[func()]
}

func (w *looksTwice) Group(key fleet.GroupKey) (fleet.Group, bool) {
	g, ok := w.wanted.Group(key)
	if key == web && w.known() {
		g.Disabled = "what an instance shows of it is being read"
	}
	if appear := w.appear.Swap(nil); appear != nil {
		(*appear)()
	}
	return g, ok
}

// TestRecordFoundWhileItsGroupIsRead: no decision about a group counts an instance that was found after
// the group was read.
func TestRecordFoundWhileItsGroupIsRead(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		time.Sleep(time.Minute)
		both := s.expectRunning(web, 2)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		late, _ := s.bucket.get(both[1])
		s.bucket.take(late.ID)
		s.setCalls(late.ID, true) // so that its machine is no stray
		s.size(web, 1)
		groups := &looksTwice{wanted: s.wanted, known: func() bool {
			_, known := s.term.ledger.Get(late.ID)
			return known
		}}
		s.adjust = func(c *reconcile.Config) { c.Groups = groups }
		s.lead()
		time.Sleep(time.Minute)
		s.bucket.place(late)
		appear := func() {
			if found, err := s.term.ledger.Recall(t.Context(), late.Tenant, late.ID); !found || err != nil {
				t.Error(found, err)
			}
		}
		groups.appear.Store(&appear)
		s.term.Enqueue(web)
		time.Sleep(time.Minute)
		if !groups.known() {
			t.Error("the record was not found")
		}
		s.expectRunning(web, 2)
	})
}
