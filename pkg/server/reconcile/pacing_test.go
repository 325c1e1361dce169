package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// usual is the default create rate.
var usual = fair.Rate{PerSecond: 10, Burst: 20, Concurrency: 16}

// mortal ends every machine of a group a while after it runs, until it is cured.
func (s *shard) mortal(key fleet.GroupKey, life time.Duration) (cure func()) {
	return s.after(life, key, func(id fleet.InstanceID) { s.world.Kill(id) })
}

// after ends every machine of a group a while after it runs, until it is cured.
func (s *shard) after(life time.Duration, key fleet.GroupKey, end func(fleet.InstanceID)) (cure func()) {
	p := s.world.Open(scope, "death")
	ctx, cure := context.WithCancel(s.t.Context())
	go func() {
		_ = p.Watch(ctx, func(e provider.Event) {
			if spec, ok := s.world.Spec(e.VM.ID); ok && e.VM.State == provider.StateRunning && spec.Tags[provider.TagGroup] == key.Name {
				time.AfterFunc(life, func() { end(e.VM.ID) })
			}
		})
	}()
	synctest.Wait()
	return cure
}

// createsOf returns the create calls of a group.
func (s *shard) createsOf(key fleet.GroupKey) (calls []fake.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.world.Calls(fake.OpCreate) {
		if s.built[c.Ref.ID] == key {
			calls = append(calls, c)
		}
	}
	return calls
}

// refusing is a provider that refuses the args of some groups.
type refusing struct {
	*fake.Provider
	refuses func(group string) bool
}

func (p refusing) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	if p.refuses(spec.Tags[provider.TagGroup]) {
		time.Sleep(50 * time.Millisecond)
		return provider.VM{}, fmt.Errorf("args.flavor: no such flavor: %w", provider.ErrInvalid)
	}
	return p.Provider.Create(ctx, spec)
}

// answering is a provider that answers creates with these errors, and with the last one for ever.
type answering struct {
	*fake.Provider
	mu   sync.Mutex
	errs []error
}

func (p *answering) Create(context.Context, provider.Spec) (provider.VM, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.errs[0]
	p.errs = p.errs[min(1, len(p.errs)-1):]
	return provider.VM{}, err
}

// TestCreatesFailForTheLastDefiniteReason: that an attempt was used before tells nothing of why it was
// refused.
func TestCreatesFailForTheLastDefiniteReason(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		p := &answering{Provider: s.world.Open(scope, "a"), errs: []error{
			errors.New("no answer"), fmt.Errorf("no more of type huge: %w", provider.ErrQuota), provider.ErrUsed,
		}}
		s.adjust = func(c *reconcile.Config) { c.Provider = p }
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		c, ok := s.term.CreatesFailing(web)
		if !ok || c.Failures < 3 || c.Reason != problems.ReasonQuota || !strings.Contains(c.Message, "no more of type huge") {
			t.Errorf("said to fail: %v %+v", ok, c)
		}
	})
}

// growth returns how long a group takes to grow from 0 to n registered instances.
func (s *shard) growth(key fleet.GroupKey, n int) time.Duration {
	s.t.Helper()
	began := time.Now()
	s.size(key, n)
	for len(s.running(key)) < n {
		if time.Since(began) > 4*time.Minute {
			s.t.Fatalf("%s has %d of %d after %s", key, len(s.running(key)), n, time.Since(began))
		}
		pass(50 * time.Millisecond)
	}
	return time.Since(began)
}

// alone returns how long db alone takes to grow from 0 to n.
func alone(t *testing.T, n int) (took time.Duration) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(50 * time.Millisecond)}, func(_ *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.CreateRate = usual }
		s.lead()
		pass(10 * time.Second)
		took = s.growth(db, n)
	})
	return took
}

// TestDeathsInAFreshFleetAreMadeUpForAtOnce: two machines die a second apart among twenty
// that came up a moment ago.
func TestDeathsInAFreshFleetAreMadeUpForAtOnce(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(50 * time.Millisecond)}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.CreateRate = usual }
		s.wanted.settings.Settle = 2 * time.Minute
		s.size(web, 20)
		s.lead()
		pass(20 * time.Second)
		for n, victim := range s.expectRunning(web, 20)[:2] {
			before := s.creates()
			s.world.Kill(victim)
			pass(time.Second)
			if made := s.creates() - before; made != 1 {
				t.Errorf("death %d: %d creates within a second", n, made)
			}
		}
		if c, ok := s.term.CreatesFailing(web); ok {
			t.Errorf("said to fail: %+v", c)
		}
	})
}

// TestOneJobMachinesKeepTheirPool: machines that do one job, say goodbye and power off are replaced
// at once, for ever.
func TestOneJobMachinesKeepTheirPool(t *testing.T) {
	for _, job := range []time.Duration{time.Second, 15 * time.Second, 10 * time.Minute} {
		t.Run(job.String(), func(t *testing.T) {
			bubble(t, fake.Config{CreateLatency: fake.Fixed(50 * time.Millisecond)}, func(t *testing.T, s *shard) {
				s.adjust = func(c *reconcile.Config) { c.CreateRate = usual }
				s.wanted.settings.Settle = settle
				s.after(job+time.Second, web, func(id fleet.InstanceID) {
					s.term.AgentReport(id, fleet.Report{At: time.Now(), ShuttingDown: true})
					s.agents.drop(s.term, id)
					time.Sleep(100 * time.Millisecond)
					s.world.Kill(id)
				})
				s.size(web, 3)
				s.lead()
				const span = 20 * time.Minute
				pass(span)
				want := int(3 * span / (job + 2*time.Second)) // each is replaced within a second
				if n := len(s.createsOf(web)); n < want {
					t.Errorf("%d made in %s, want %d", n, span, want)
				}
				if c, ok := s.term.CreatesFailing(web); ok {
					t.Errorf("said to fail: %+v", c)
				}
			})
		})
	}
}

// TestMachinesThatDieYoungHoldUpNobodyElse: a group whose machines die young does not delay the
// creates of others, and reports that its creates fail.
func TestMachinesThatDieYoungHoldUpNobodyElse(t *testing.T) {
	ideal := alone(t, 20)
	for name, doom := range map[string]func(*shard){
		"they end after 20 s": func(s *shard) { s.mortal(web, 20*time.Second) },
		"they never register": func(s *shard) {
			s.agents.muteGroup = web
			s.wanted.settings.RegistrationTimeout = 20 * time.Second
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{CreateLatency: fake.Fixed(50 * time.Millisecond)}, func(t *testing.T, s *shard) {
				s.adjust = func(c *reconcile.Config) { c.CreateRate = usual }
				s.wanted.settings.Settle = 2 * time.Minute
				doom(s)
				s.size(web, 100)
				s.lead()
				pass(time.Minute)
				took := s.growth(db, 20)
				if took > ideal*12/10 {
					t.Errorf("another group's 20 took %s, %s without this one", took, ideal)
				}
				pass(4*time.Minute - took)
				if n := len(s.createsOf(web)); n > 150+20 {
					t.Errorf("%d creates in five minutes for a group of 100 whose machines don't live", n)
				}
				began := len(s.createsOf(web))
				pass(time.Hour)
				if n := len(s.createsOf(web)) - began; n < 10 || n > 60 {
					t.Errorf("%d creates in an hour; it is to probe now and then", n)
				}
				if p := s.reported(problems.ReasonCreatesFailing); len(p) == 0 || p[0].Group != web {
					t.Errorf("problems: %v", p)
				}
				if _, failing := s.term.CreatesFailing(db); failing {
					t.Errorf("the other group is said to fail")
				}
			})
		})
	}
}

// TestRefusedGroupsHoldUpNobodyElse: many groups with refused creates together have at most a tenth
// of the creates.
func TestRefusedGroupsHoldUpNobodyElse(t *testing.T) {
	ideal := alone(t, 50)
	bubble(t, fake.Config{CreateLatency: fake.Fixed(50 * time.Millisecond)}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) {
			c.CreateRate = usual
			c.Provider = refusing{s.world.Open(scope, "a"), func(g string) bool { return strings.HasPrefix(g, "bad") }}
		}
		for n := range 300 {
			s.size(fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("bad-%03d", n)}, 1)
		}
		s.lead()
		pass(2 * time.Minute) // all of them fail now
		if n := len(s.reported(problems.ReasonCreatesFailing)); n < 300 {
			t.Fatalf("%d groups are said to fail", n)
		}
		if took := s.growth(db, 50); took > ideal*12/10 {
			t.Errorf("0 to 50 took %s, %s without the groups that fail", took, ideal)
		}
	})
}

// TestGroupsThatFailHaveATenthOfTheSlots: and one each, however long their creates take; without
// a rate only this limits them.
func TestGroupsThatFailHaveATenthOfTheSlots(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		slow := &slow{Provider: s.world.Open(scope, "a"), under: map[string]int{}}
		s.adjust = func(c *reconcile.Config) {
			c.CreateRate, c.CreateBackoff, c.Provider = fair.Rate{Concurrency: 20}, 20*time.Second, slow
		}
		for n := range 30 {
			s.size(fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("bad-%02d", n)}, 5)
		}
		s.lead()
		pass(10 * time.Minute)
		slow.reset()
		if took := s.growth(db, 36); took > 4*time.Second { // twice 18 slots, and a second to register
			t.Errorf("0 to 36 took %s", took)
		}
		pass(10 * time.Minute)
		if all, ofOne := slow.counted(); all != 2 || ofOne != 1 {
			t.Errorf("%d creates of groups that fail under way, and %d of one group; want 2 and 1", all, ofOne)
		}
	})
}

// slow refuses some groups after ten seconds, and counts the creates of these.
type slow struct {
	*fake.Provider
	mu              sync.Mutex
	under           map[string]int
	all             int
	most, mostOfOne int
}

func (p *slow) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	group := spec.Tags[provider.TagGroup]
	if !strings.HasPrefix(group, "bad") {
		return p.Provider.Create(ctx, spec)
	}
	p.change(group, 1)
	defer p.change(group, -1)
	time.Sleep(10 * time.Second)
	return provider.VM{}, provider.ErrInvalid
}

func (p *slow) change(group string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all += n
	p.under[group] += n
	p.most, p.mostOfOne = max(p.most, p.all), max(p.mostOfOne, p.under[group])
}

// counted returns the maximum of concurrent creates, of all groups and of one.
func (p *slow) counted() (all, ofOne int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most, p.mostOfOne
}

func (p *slow) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most, p.mostOfOne = 0, 0
}
