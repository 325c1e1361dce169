package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// paged lists in pages that take their time.
type paged struct {
	*fake.Provider
	pages int
	each  time.Duration
}

func (p paged) List(ctx context.Context) ([]provider.VM, error) {
	for range p.pages {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(p.each):
		}
		provider.Listed(ctx)
	}
	return p.Provider.List(ctx)
}

// lists records a loop's Listing calls.
type lists struct {
	mu    sync.Mutex
	pages int
	ended []error
}

func (l *lists) begin() (page func(), ended func(error)) {
	return func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.pages++
		}, func(err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.ended = append(l.ended, err)
		}
}

// TestSlowListComesToItsEnd: a list takes longer than the request timeout, but none of its pages
// does.
func TestSlowListComesToItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		each time.Duration
		ends bool
	}{"pages in time": {20 * time.Second, true}, "no page in time": {31 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				var told lists
				s.adjust = func(c2 *reconcile.Config) {
					c2.Provider = paged{Provider: s.world.Open(scope, "slow"), pages: 4, each: c.each}
					c2.Listing = told.begin
				}
				s.size(web, 1)
				s.lead()
				pass(100 * time.Second)
				told.mu.Lock()
				defer told.mu.Unlock()
				if c.ends {
					s.expectRunning(web, 1)
					if told.pages != 4 || len(told.ended) != 1 || told.ended[0] != nil {
						t.Errorf("told of %d pages and the ends %v, want four pages and one list", told.pages, told.ended)
					}
					return
				}
				s.expectRunning(web, 0)
				hung := func(err error) bool {
					return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
				}
				if told.pages > 0 || len(told.ended) != 3 || slices.ContainsFunc(told.ended, func(err error) bool { return !hung(err) }) {
					t.Errorf("told of %d pages and the ends %v, want three lists that hung", told.pages, told.ended)
				}
			})
		})
	}
}

// TestListOfAnEndedTerm: it is reported as canceled, not as a failure of the provider.
func TestListOfAnEndedTerm(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		var told lists
		s.adjust = func(c *reconcile.Config) { c.Listing = told.begin }
		s.world.FailNext(fake.OpList, 1, fake.Fault{Hang: true})
		s.lead()
		pass(10 * time.Second)
		s.stop()
		if len(told.ended) != 1 || !errors.Is(told.ended[0], context.Canceled) {
			t.Errorf("told %v, want one list called off", told.ended)
		}
	})
}

// TestFailedSweepIsRepeatedSoon, not after the sweep interval; then the interval applies again.
func TestFailedSweepIsRepeatedSoon(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.lead()
		pass(time.Second)
		s.world.ForgetCalls()
		s.world.FailNext(fake.OpList, 5, fake.Fault{Err: fake.ErrLost})
		began := time.Now()
		pass(5 * time.Minute)
		var at []time.Duration
		for _, c := range s.world.Calls(fake.OpList) {
			at = append(at, c.Start.Sub(began).Round(100*time.Millisecond))
		}
		want := []time.Duration{29 * time.Second, 29500 * time.Millisecond, 30500 * time.Millisecond, 32500 * time.Millisecond,
			36500 * time.Millisecond, 44500 * time.Millisecond, 164500 * time.Millisecond, 284500 * time.Millisecond}
		if !slices.Equal(at, want) {
			t.Errorf("listed at %v, want %v", at, want)
		}
	})
}
