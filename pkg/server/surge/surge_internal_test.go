package surge

import (
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

func named(name string) fleet.GroupKey { return fleet.GroupKey{Tenant: "default", Name: name} }

// account returns the surges of three groups of ten.
func account() *Budget {
	s := New()
	s.Recount(map[fleet.GroupKey]int{named("a"): 10, named("b"): 10, named("c"): 10}, fleet.Surge{})
	for _, name := range []string{"a", "b", "c"} {
		s.Decided(fleet.Group{Key: named(name), Size: 10}, true, plan.Decision{}, fleet.Surge{})
	}
	return s
}

func (s *Budget) decide(name string, used int, starved bool, limit fleet.Surge) []fleet.GroupKey {
	return s.Decided(fleet.Group{Key: named(name), Size: 10}, true, plan.Decision{Surge: used, Starved: starved}, limit)
}

func TestSurgesOfNobodyCounted(t *testing.T) {
	s, limit := New(), fleet.Surge{Percent: 10}
	s.Recount(map[fleet.GroupKey]int{named("a"): 10, named("b"): 10}, fleet.Surge{})
	if n := s.Granted(named("a"), limit); n != 0 {
		t.Errorf("%d are given before it is known what b has", n)
	}
	if turn := s.decide("a", 0, true, limit); len(turn) > 0 {
		t.Errorf("it is the turn of %v", turn)
	}
	if turn := s.decide("b", 1, false, limit); !slices.Equal(turn, []fleet.GroupKey{named("a")}) {
		t.Errorf("it is the turn of %v", turn)
	}
	if n := s.Granted(named("a"), limit); n != 1 {
		t.Errorf("a is given %d, of 2, of which b has 1", n)
	}
}

func TestSurgesTakeTurns(t *testing.T) {
	s, limit := account(), fleet.Surge{Percent: 10}
	if n := s.Granted(named("a"), limit); n != 3 {
		t.Errorf("a tenth of 30 is %d", n)
	}
	s.decide("a", 3, true, limit)
	if n := s.Granted(named("a"), limit); n != 3 {
		t.Errorf("what a has is %d", n)
	}
	s.decide("b", 0, true, limit)
	s.decide("c", 0, true, limit)
	if turn := s.decide("a", 2, false, limit); !slices.Equal(turn, []fleet.GroupKey{named("b")}) {
		t.Errorf("it is the turn of %v", turn)
	}
	for name, want := range map[string]int{"a": 2, "b": 1, "c": 0} {
		if n := s.Granted(named(name), limit); n != want {
			t.Errorf("%s is given %d, want %d", name, n, want)
		}
	}
	if turn := s.decide("b", 0, false, limit); !slices.Equal(turn, []fleet.GroupKey{named("c")}) {
		t.Errorf("it is the turn of %v", turn)
	}
	s.decide("c", 1, false, limit)
	if s.used != 3 || len(s.queue)+len(s.waits)+len(s.turn) > 0 {
		t.Errorf("%d used, %v wait, %v have their turn", s.used, s.queue, s.turn)
	}
}

// TestSurgesShrink: used surge stays, and none is granted until enough is free.
func TestSurgesShrink(t *testing.T) {
	s := account()
	s.decide("a", 3, true, fleet.Surge{Count: 3})
	s.decide("b", 0, true, fleet.Surge{Count: 3})
	less := fleet.Surge{Count: 1}
	for name, want := range map[string]int{"a": 3, "b": 0, "c": 0} {
		if n := s.Granted(named(name), less); n != want {
			t.Errorf("%s is given %d, want %d", name, n, want)
		}
	}
	if turn := s.decide("a", 1, true, less); len(turn) > 0 {
		t.Errorf("it is the turn of %v", turn)
	}
	if turn := s.decide("a", 0, true, less); !slices.Equal(turn, []fleet.GroupKey{named("a")}) {
		t.Errorf("it is the turn of %v", turn)
	}
}

// TestSurgesForgetGroups: a removed group leaves no state.
func TestSurgesForgetGroups(t *testing.T) {
	limit := fleet.Surge{Count: 2}
	s := account()
	s.decide("a", 2, true, limit)
	s.decide("b", 0, true, limit)
	s.Recount(map[fleet.GroupKey]int{named("c"): 10}, fleet.Surge{})
	if len(s.groups) != 1 || s.size != 10 || s.used != 0 || len(s.queue)+len(s.waits) > 0 {
		t.Errorf("after a recount: %+v", s)
	}
	s.decide("c", 1, true, limit)
	s.Decided(fleet.Group{Key: named("c"), Removed: true}, true, plan.Decision{Surge: 1}, limit)
	if s.size != 0 || s.used != 1 {
		t.Errorf("while it goes: %+v", s)
	}
	s.Decided(fleet.Group{Key: named("c"), Removed: true}, false, plan.Decision{}, limit)
	if len(s.groups)+len(s.turn)+len(s.queue)+len(s.waits) > 0 || s.used != 0 {
		t.Errorf("once it has gone: %+v", s)
	}
}
