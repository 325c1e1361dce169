package observe_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestJoin: records and creates that are not recorded yet, sorted, with what is known of them.
func TestJoin(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	b, d := known.running("b", 50), known.pending("d")
	other := known.running("other", 0)
	other.Group = "db"
	known["other"] = other
	s.See(at(1), shows(b, provider.StateRunning, 1))
	s.StartStep(web, "b", at(1))
	s.EndStep(web, "b", errors.New("failed"), twice, at(98))
	unrecorded := fleet.Instance{ID: "a", Phase: fleet.Pending}
	j := s.Join(web, []fleet.Instance{d, unrecorded}, observe.Moment{Now: at(99), Settings: settings}, nil)
	var ids []fleet.InstanceID
	for _, i := range j.Instances {
		ids = append(ids, i.ID)
	}
	if !slices.Equal(ids, []fleet.InstanceID{"a", "b", "d"}) {
		t.Fatalf("joined are %v", ids)
	}
	if !j.Instances[0].Busy || !j.Instances[1].Busy || j.Instances[2].Busy {
		t.Errorf("busy are %+v, want the one that is not recorded and the one whose step failed", j.Instances)
	}
	if i := j.Instances[1]; i.VM != plan.VMAlive || !i.KnownSince.Equal(at(99)) {
		t.Errorf("joined: %+v", i)
	}
	if !j.Again.Equal(at(100)) || !j.Settles.Equal(at(110)) {
		t.Errorf("a step is due at %v, want %v; an instance settles at %v, want %v", j.Again, at(100), j.Settles, at(110))
	}
	if i := joined(s, 120).Instances[0]; !i.KnownSince.Equal(at(99)) {
		t.Errorf("known since %v", i.KnownSince)
	}
}

// TestJoinWhileAbsenceIsUndecided: nothing is decided about an absent instance.
func TestJoinWhileAbsenceIsUndecided(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	s.See(at(1), lacks(known.running("i", 0), 1))
	for _, awaited := range []bool{true, false} {
		i := s.Join(web, nil, observe.Moment{Now: at(2), Settings: settings, Awaited: awaited}, nil).Instances[0]
		if i.Busy != awaited || (i.VM == plan.VMAlive) != awaited {
			t.Errorf("awaited %t: %+v", awaited, i)
		}
	}
}

// TestJoinWhileThrottled: an instance that waits for its create does not wait for its agent.
func TestJoinWhileThrottled(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	waits, shown := known.pending("a"), known.pending("b")
	s.CreateCalled(waits.ID, at(1))
	s.CreateCalled(shown.ID, at(1))
	s.See(at(1), shows(shown, provider.StatePending, 1))
	if j := joined(s, 5); !j.Instances[0].AskedAt.Equal(at(1)) {
		t.Errorf("asked at %v", j.Instances[0].AskedAt)
	}
	j := s.Join(web, nil, observe.Moment{Now: at(9), Settings: settings, Throttled: true}, nil)
	if !j.Instances[0].AskedAt.Equal(at(9)) || !j.Instances[1].AskedAt.Equal(at(1)) {
		t.Errorf("asked at %v and %v, want now and before", j.Instances[0].AskedAt, j.Instances[1].AskedAt)
	}
}
