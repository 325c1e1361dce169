package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// chronicle holds the recorded events.
type chronicle struct {
	mu     sync.Mutex
	events []fleet.Event
}

func (s *shard) chronicled() *chronicle {
	c := &chronicle{}
	adjust := s.adjust
	s.adjust = func(cfg *reconcile.Config) {
		if adjust != nil {
			adjust(cfg)
		}
		cfg.Record = func(e fleet.Event) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.events = append(c.events, e)
		}
	}
	return c
}

// of returns kinds, actors and reasons of the events that concern an instance, or of all.
func (c *chronicle) of(id fleet.InstanceID) (told []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if id == "" || e.Concerns(id) {
			told = append(told, fmt.Sprint(e.Kind, " ", e.Actor, " ", e.Reason))
		}
	}
	return told
}

// last returns the last event of a kind; zero if there is none.
func (c *chronicle) last(kind fleet.EventKind) (last fleet.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Kind == kind {
			last = e
		}
	}
	return last
}

func says(t *testing.T, e fleet.Event, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(e.Message, text) {
			t.Errorf("%s %s: %q, want it to say %q", e.Kind, e.Reason, e.Message, text)
		}
	}
}

// TestEventsOfADeath: the whole life of an instance and of its replacement is told, each step once,
// with the rule and what it was decided by.
func TestEventsOfADeath(t *testing.T) {
	for name, c := range map[string]struct {
		end            func(*fake.World, fleet.InstanceID) bool
		remember       time.Duration
		reason, detail string
	}{
		"stopped":       {(*fake.World).Kill, time.Minute, plan.ReasonVMDown, "its machine has stopped: out of memory"},
		"gone, listed":  {(*fake.World).Vanish, time.Minute, plan.ReasonVMGone, "its machine is gone: out of memory"},
		"gone, unknown": {(*fake.World).Vanish, 0, plan.ReasonVMGone, "its machine is gone (not found by 2 calls since "},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{Remember: c.remember, Shutdown: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
				if c.remember == 0 {
					s.blinded(false) // without its events
				}
				told := s.chronicled()
				s.size(web, 2)
				s.lead()
				pass(time.Minute)
				victim := s.expectRunning(web, 2)[0]
				s.world.Explain(victim, "out of memory")
				c.end(s.world, victim)
				pass(time.Minute)
				s.expectRunning(web, 2)
				want := []string{
					"create rule:scale scale-up", "replace rule:health " + c.reason, "delete rule:health " + c.reason,
					"deleted rule:health " + c.reason,
				}
				got := told.of(victim)
				slices.Sort(got) // the replacement and the removal are concurrent
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("told %q, want %q", got, want)
				}
				says(t, told.last(fleet.EventCreate), "group web has 0 of 2 instances")
				says(t, told.last(fleet.EventReplace), "it replaces "+string(victim)+": "+c.detail)
				says(t, told.last(fleet.EventDelete), c.detail)
				says(t, told.last(fleet.EventDeleted), "its machine is gone")
				if e := told.last(fleet.EventReplace); e.Instance == victim || e.Replaces != victim || e.GroupKey() != web {
					t.Errorf("%+v", e)
				}
				if all := told.of(""); len(all) != 6 || all[0] != "takeover rule:election takeover" {
					t.Errorf("told %q", all)
				}
			})
		})
	}
}

// TestEventsOfScaling: what scaling down does is told, and a takeover repeats nothing.
func TestEventsOfScaling(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		told := s.chronicled()
		s.wanted.edit(web, func(g *fleet.Group) { g.DrainTimeout = time.Minute })
		s.size(web, 3)
		s.lead()
		pass(time.Minute)
		oldest := s.expectRunning(web, 3)[0]
		s.size(web, 2)
		pass(10 * time.Second)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s.lead()
		pass(5 * time.Minute)
		want := []string{
			"create rule:scale scale-up", "drain rule:scale scale-down", "delete rule:scale scale-down", "deleted rule:scale scale-down",
		}
		if got := told.of(oldest); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		says(t, told.last(fleet.EventDrain), "group web has 3 instances and size 2; this one is the oldest; it drains until")
		says(t, told.last(fleet.EventDelete), "the time for its drain is over")
	})
}

// TestEventsOfFailingCreates: that creates fail is told once, and that they no longer do.
func TestEventsOfFailingCreates(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		told := s.chronicled()
		s.world.FailNext(fake.OpCreate, 5, fake.Fault{Err: fmt.Errorf("no such image: %w", provider.ErrInvalid)})
		s.size(web, 1)
		s.lead()
		pass(time.Hour)
		s.expectRunning(web, 1)
		var failing []string
		for _, e := range told.of("") {
			if !strings.HasPrefix(e, "create ") && !strings.HasPrefix(e, "deleted ") && !strings.HasPrefix(e, "takeover ") {
				failing = append(failing, e)
			}
		}
		if want := []string{"failing rule:pacing CreatesFailing", "recovered rule:pacing creates-recovered"}; !slices.Equal(failing, want) {
			t.Errorf("told %q, want %q", failing, want)
		}
		says(t, told.last(fleet.EventFailing), "no such image")
		says(t, told.last(fleet.EventDeleted), "no such image")
	})
}

// TestEventsOfTheSweep: a machine without a record that is removed is told, and so is a hold, with
// its end.
func TestEventsOfTheSweep(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		told := s.chronicled()
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		stray := s.world.Open(scope, "other")
		id, err := s.newID("knd", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		tags := scope.Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"})
		vm, err := stray.Create(context.Background(), provider.Spec{ID: id, Tags: tags})
		if err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Minute)
		e := told.last(fleet.EventOrphan)
		says(t, e, vm.ProviderID)
		if e.Instance != id || e.GroupKey() != web || e.Actor != "rule:sweep" {
			t.Errorf("%+v", e)
		}
	})
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		blind := s.blinded(false)
		told := s.chronicled()
		s.size(web, 20)
		s.lead()
		pass(5 * time.Minute)
		s.expectRunning(web, 20)
		blind.setBlind(true)
		pass(10 * time.Minute)
		blind.setBlind(false)
		pass(10 * time.Minute)
		var held []string
		for _, e := range told.of("") {
			if strings.HasPrefix(e, "held ") || strings.HasPrefix(e, "resumed ") {
				held = append(held, e)
			}
		}
		if want := []string{"held rule:absence VMsNotFound", "resumed rule:absence VMsNotFound"}; !slices.Equal(held, want) {
			t.Errorf("told %q, want %q", held, want)
		}
		says(t, told.last(fleet.EventHeld), "The provider does not find the VMs")
	})
}
