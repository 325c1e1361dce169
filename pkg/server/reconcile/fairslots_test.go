package reconcile_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// sluggish is a provider whose creates for some tenants take long, or get no answer at all. It
// counts the creates in progress of each tenant.
type sluggish struct {
	*fake.Provider
	takes time.Duration // 0: no answer
	slow  map[string]bool

	mu    sync.Mutex
	under map[string]int
	most  map[string]int // at one time
}

func (p *sluggish) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	tenant := spec.Tags[provider.TagTenant]
	p.change(tenant, 1)
	defer p.change(tenant, -1)
	p.mu.Lock()
	slow, takes := p.slow[tenant], p.takes
	p.mu.Unlock()
	switch {
	case !slow:
	case takes == 0:
		<-ctx.Done()
		return provider.VM{}, ctx.Err()
	default:
		time.Sleep(takes)
	}
	return p.Provider.Create(ctx, spec)
}

func (p *sluggish) change(tenant string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range []string{tenant, "all"} {
		p.under[name] += n
		p.most[name] = max(p.most[name], p.under[name])
	}
}

// slowDown makes creates of some tenants slow from now on, and resets the counts.
func (p *sluggish) slowDown(tenants ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range tenants {
		p.slow[name] = true
	}
	clear(p.most)
}

// counted returns the maximum of concurrent creates since then.
func (p *sluggish) counted(tenant string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most[tenant]
}

func withSluggish(s *shard, takes time.Duration, slots int) *sluggish {
	p := &sluggish{Provider: s.world.Open(scope, "a"), takes: takes, slow: map[string]bool{}, under: map[string]int{}, most: map[string]int{}}
	s.adjust = func(c *reconcile.Config) { c.CreateRate, c.Provider = fair.Rate{Concurrency: slots}, p }
	return p
}

// TestSlowCreatesOfATenantLeaveSlots: a tenant whose creates take as long as the timeout has all
// slots while no other tenant wants one. Creates in progress are not preempted, but another
// tenant gets its share as they end.
func TestSlowCreatesOfATenantLeaveSlots(t *testing.T) {
	const patience = 30 * time.Second // the timeout of requests
	blue := fleet.GroupKey{Tenant: "blue", Name: "slow"}
	for name, c := range map[string]struct {
		takes         time.Duration
		prepare, grow func(s *shard)
	}{
		"of a group": {takes: 25 * time.Second, grow: func(s *shard) { s.size(blue, 200) }},
		"on-demand ones without an answer": {grow: func(s *shard) {
			s.size(blue, 0)
			for range 100 {
				s.demand(blue)
			}
		}},
		"replacements that are immediate": {
			takes: 25 * time.Second,
			prepare: func(s *shard) {
				s.size(blue, 100)
				pass(10 * time.Minute) // all have settled
			},
			grow: func(s *shard) {
				for _, id := range s.expectRunning(blue, 100) {
					s.world.Kill(id)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{CreateLatency: fake.Fixed(100 * time.Millisecond)}, func(t *testing.T, s *shard) {
				p := withSluggish(s, c.takes, 16)
				s.size(web, 0)
				s.lead()
				if c.prepare != nil {
					c.prepare(s)
				}
				p.slowDown("blue")
				c.grow(s)
				pass(time.Second)
				if n := p.counted("blue"); n != 16 {
					t.Fatalf("%d creates of the slow tenant under way while no other waits, want 16: %s", n, s.dump())
				}
				if took := s.growth(web, 40); took > patience+2*time.Second { // 8 at a time from then on, and a second to register
					t.Errorf("0 to 40 took %s", took)
				}
				p.slowDown()
				pass(2 * patience)
				if n := p.counted("blue"); n != 16 {
					t.Errorf("%d creates of the slow tenant under way once no other waits, want 16", n)
				}
			})
		})
	}
}

// TestSlotsThatNoShareNeedsAreUsed: the remainder of the division, and slots that a tenant does
// not use because its group has its one instance on probation.
func TestSlotsThatNoShareNeedsAreUsed(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		p := withSluggish(s, 10*time.Second, 8)
		s.lead()
		p.slowDown("red", "green", "blue")
		for _, tenant := range []string{"red", "green", "blue"} {
			s.size(fleet.GroupKey{Tenant: tenant, Name: "web"}, 100)
		}
		pass(15 * time.Second) // the second round
		p.slowDown()
		pass(40 * time.Second)
		if n := p.counted("all"); n != 8 {
			t.Errorf("%d under way at one time, want all 8", n)
		}
		for _, tenant := range []string{"red", "green", "blue"} {
			if n := p.counted(tenant); n < 2 || n > 4 {
				t.Errorf("%d of tenant %s, want a share of 2 and at most what is over", n, tenant)
			}
		}
	})
}

// TestTrialsOfATenantHoldNoSlots: a tenant whose creates fail backs off without keeping slots
// from others.
func TestTrialsOfATenantHoldNoSlots(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		p := withSluggish(s, 0, 16)
		s.lead()
		p.slowDown("blue") // and never answers
		for _, name := range []string{"a", "b", "c"} {
			s.size(fleet.GroupKey{Tenant: "blue", Name: name}, 10)
		}
		pass(10 * time.Minute)
		if took := s.growth(web, 45); took > 5*time.Second { // three rounds of 15, and a second to register
			t.Errorf("0 to 45 took %s", took)
		}
	})
}
