package reconcile_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// forgetful is a provider whose lists come back empty for a while.
type forgetful struct {
	provider.Provider
	blind *atomic.Bool
}

func (f forgetful) List(ctx context.Context) ([]provider.VM, error) {
	vms, err := f.Provider.List(ctx)
	if f.blind.Load() {
		return nil, err
	}
	return vms, err
}

// A list that shows none of those it was made for is not the end of them all.
func TestStatusListThatShowsNobodyIsChecked(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		var blind atomic.Bool
		s.adjust = func(c *reconcile.Config) { c.Provider = forgetful{c.Provider, &blind} }
		s.size(web, 12)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 12)
		blind.Store(true)
		for _, id := range ids { // a network that breaks
			s.agents.drop(s.term, id)
		}
		pass(5 * time.Second)
		blind.Store(false)
		for _, id := range ids {
			s.agents.connect(s.term, id)
		}
		pass(5 * time.Minute)
		if c, d := len(s.world.Calls(fake.OpCreate)), len(s.world.Calls(fake.OpDelete)); c != 12 || d != 0 {
			t.Errorf("%d creates and %d deletes, want 12 and 0", c, d)
		}
	})
}
