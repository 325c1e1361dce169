package observe_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestACreateOfTheLastTermMayBeSlowToShow: the record has the time of its first create call.
// While the provider throttled, the previous leader may have retried until its end, so the
// VM may be that new.
func TestACreateOfTheLastTermMayBeSlowToShow(t *testing.T) {
	r := fleet.Instance{ID: "i", Phase: fleet.Pending, Provider: fleet.ProviderRef{CreateAttemptedAt: new(at(-70))}}
	s := observe.New(records{}, false, began)
	for _, c := range []struct {
		asked float64
		gone  bool
	}{{1, false}, {4, false}, {59, false}, {60, false}, {62, true}} {
		s.See(at(c.asked), lacks(r, c.asked))
		if gone := s.Get(r.ID).VM == plan.VMGone; gone != c.gone {
			t.Errorf("not found %v s after the takeover: gone %v", c.asked, gone)
		}
	}
}

// TestAListIsTakenOverAsOne: when all are found again, no decision sees some of them still
// absent, since a few absent ones would be replaced.
func TestAListIsTakenOverAsOne(t *testing.T) {
	const all = 1000
	known := records{}
	s := observe.New(known, true, began)
	var lost, found []observe.Answer
	for n := range all {
		r := known.running(fleet.InstanceID(fmt.Sprintf("i%04d", n)), 0)
		lost, found = append(lost, lacks(r, 0)), append(found, shows(r, provider.StateRunning, 1))
	}
	absent := func() int { r, _ := s.Roll(all, true); return r.Absent }
	s.See(began, lost...)
	if n := absent(); n != all {
		t.Fatalf("%d absent, want %d", n, all)
	}

	var done atomic.Bool
	seen := make(chan map[int]bool, 1)
	watched := make(chan struct{})
	go func() {
		counts := map[int]bool{}
		for first := true; !done.Load(); first = false {
			counts[absent()] = true
			if first {
				close(watched)
			}
		}
		seen <- counts
	}()
	<-watched
	s.See(at(1), found...)
	done.Store(true)
	for n := range <-seen {
		if n != 0 && n != all {
			t.Errorf("%d of %d were absent for a moment", n, all)
		}
	}
	if n := absent(); n != 0 {
		t.Errorf("%d absent, want 0", n)
	}
}

// TestRoll: instances that are leaving for good, or have no record, are not counted, and nothing is
// while none is absent or all of these are silent.
func TestRoll(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	if none, _ := s.Roll(6, true); none != (census.Roll{}) {
		t.Errorf("counted %+v with none absent", none)
	}
	for n := range 6 {
		r := known.running(fleet.InstanceID(fmt.Sprint("absent", n)), 0)
		s.See(at(1), lacks(r, 1))
	}
	present := known.running("present", 0)
	s.See(at(1), shows(present, provider.StateRunning, 1))
	leaving := known["absent5"]
	leaving.Phase = fleet.Deleting
	known.add(leaving)
	if r, _ := s.Roll(100, false); r != (census.Roll{}) {
		t.Errorf("silent ones were counted: %+v", r)
	}
	s.Connected("absent3")
	s.Connected("absent1")
	if r, _ := s.Roll(100, false); r != (census.Roll{Records: 100, Absent: 5, Connected: 2}) {
		t.Errorf("within the limit: %+v", r)
	}
	r, connected := s.Roll(7, false)
	if want := (census.Roll{Records: 6, Absent: 5, Connected: 2, Found: 1}); r != want {
		t.Errorf("beyond the limit: %+v, want %+v", r, want)
	}
	if !slices.Equal(connected, []fleet.InstanceID{"absent1", "absent3"}) {
		t.Errorf("connected are %v", connected)
	}
}

// TestRollOfASmallShard: one that is being deleted does not make the only other one a small part.
func TestRollOfASmallShard(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	s.See(at(1), lacks(known.running("only", 0), 1))
	leaving := known.running("leaving", 0)
	leaving.Phase = fleet.Deleting
	known.add(leaving)
	if r, _ := s.Roll(2, true); !r.Exceeds() {
		t.Errorf("all are absent, and %+v is within the limit", r)
	}
}

// TestPollFirst: only a create that may still be in progress is polled before its delete, if a
// not-found means something afterwards.
func TestPollFirst(t *testing.T) {
	for name, c := range map[string]struct {
		consistent bool
		age        float64
		change     func(*observe.State, *fleet.Instance)
		want       bool
	}{
		"young":               {true, 10, nil, true},
		"old":                 {true, 61, nil, false},
		"reads lag":           {false, 10, nil, false},
		"its create answered": {true, 10, func(_ *observe.State, r *fleet.Instance) { r.Provider.ID = "vm-1" }, false},
		"shown":               {true, 10, func(s *observe.State, r *fleet.Instance) { s.See(at(1), shows(*r, provider.StatePending, 1)) }, false},
		"shown, then missing": {true, 10, func(s *observe.State, r *fleet.Instance) {
			s.See(at(1), shows(*r, provider.StatePending, 1))
			s.See(at(2), lacks(*r, 2))
		}, false},
	} {
		s := observe.New(records{}, c.consistent, began.Add(-time.Hour))
		r := fleet.Instance{ID: "i", Phase: fleet.Pending}
		s.StartCreate(r.ID, "", false, began)
		if c.change != nil {
			c.change(s, &r)
		}
		if got := s.PollFirst(r, at(c.age)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
