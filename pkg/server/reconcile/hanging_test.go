package reconcile_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// hangingProvider answers no delete while it hangs.
type hangingProvider struct {
	*fake.Provider
	hangs atomic.Bool
}

func (p *hangingProvider) Delete(ctx context.Context, refs []provider.Ref) []error {
	if p.hangs.Load() {
		<-ctx.Done()
		return slices.Repeat([]error{ctx.Err()}, len(refs))
	}
	return p.Provider.Delete(ctx, refs)
}

// Deletes of a large group that the provider does not answer take no goroutine each, and other groups go on
// meanwhile.
func TestManyDeletesHang(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		const size = 500
		p := &hangingProvider{Provider: s.world.Open(scope, "server-1")}
		s.adjust = func(c *reconcile.Config) { c.Provider = p }
		s.size(web, size)
		s.size(db, 2)
		s.lead()
		pass(time.Minute)
		s.expectRunning(web, size)
		before := s.expectRunning(db, 2)
		goroutines := runtime.NumGoroutine()
		p.hangs.Store(true)
		s.size(web, 0)
		pass(5 * time.Second)
		if n := len(s.records(web, fleet.Deleting)); n != size {
			t.Errorf("%d of %d are being deleted", n, size)
		}
		if n := runtime.NumGoroutine() - goroutines; n > 100 {
			t.Errorf("%d goroutines for %d deletes", n, size)
		}
		s.world.Kill(before[0])
		pass(10 * time.Second)
		if after := s.expectRunning(db, 2); slices.Contains(after, before[0]) {
			t.Error("the dead machine is not replaced")
		}
		if err := s.stop(); err != nil {
			t.Errorf("the term ended with %v", err)
		}
		p.hangs.Store(false)
		s.lead()
		pass(5 * time.Minute)
		if n := len(s.records(web, fleet.Deleting)); n != 0 {
			t.Errorf("%d are still being deleted", n)
		}
	})
}

// hangingGroups forgets no group.
type hangingGroups struct{ *wanted }

func (hangingGroups) Forget(ctx context.Context, _ fleet.GroupKey) error {
	<-ctx.Done()
	return ctx.Err()
}

// Edits of many groups that take long hold back no instance.
func TestManyEditsHang(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.Groups = hangingGroups{s.wanted} }
		s.size(db, 2)
		for n := range 100 {
			s.wanted.edit(fleet.GroupKey{Tenant: "default", Name: fmt.Sprint("empty-", n)}, func(g *fleet.Group) { g.Removed = true })
		}
		s.lead()
		pass(time.Minute)
		before := s.expectRunning(db, 2)
		s.world.Kill(before[0])
		pass(10 * time.Second)
		if after := s.expectRunning(db, 2); slices.Contains(after, before[0]) || len(s.records(db, fleet.Deleted)) != 1 {
			t.Errorf("the dead machine is not replaced: %s", s.dump())
		}
	})
}
