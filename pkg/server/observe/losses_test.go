package observe_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
)

// replaced returns which instances the creates of a pass replace.
func replaced(s *observe.State, now float64, creates int) (ids []string) {
	for _, i := range s.Replace(joined(s, now), creates) {
		ids = append(ids, string(i.ID))
	}
	return ids
}

// TestReplace: those that had settled are first, then those that were lost first.
func TestReplace(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	die := func(id fleet.InstanceID, registered, lost float64) {
		r := known.running(id, registered)
		s.See(at(lost), shows(r, provider.StateStopped, lost))
	}
	die("a-young", 100, 110)
	die("b-old", 0, 112)
	die("c-old", 0, 111)
	die("d-young", 100, 109)
	known.running("e-well", 0)
	for creates, want := range []string{"", "c-old", "c-old b-old", "c-old b-old d-young", "c-old b-old d-young a-young"} {
		if got := strings.Join(replaced(s, 120, creates), " "); got != want {
			t.Errorf("%d creates replace %q, want %q", creates, got, want)
		}
	}
	if got := replaced(s, 120, 9); len(got) != 4 {
		t.Errorf("nine creates replace %v", got)
	}
}

// TestReplacementOfATombstone: a lost instance whose record is a tombstone is replaced only if the
// last pass decided on that.
func TestReplacementOfATombstone(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	r := known.running("i", 0)
	s.See(at(100), shows(r, provider.StateStopped, 100))
	bury := func() { r.Phase = fleet.Deleted; known.add(r) }
	if got := replaced(s, 101, 0); got != nil {
		t.Errorf("replaced without a create: %v", got)
	}
	bury()
	if got := replaced(s, 102, 1); got != nil {
		t.Errorf("a tombstone is replaced: %v", got)
	}
	r = known.running("i", 0)
	replaced(s, 103, 1)
	bury()
	if got := replaced(s, 104, 1); !slices.Equal(got, []string{"i"}) {
		t.Errorf("a tombstone whose replacement is queued: %v", got)
	}
	if !joined(s, 104).Instances[0].Immediate {
		t.Errorf("it had settled, and its replacement is not immediate")
	}
	lost, ok := s.StartCreate("next", "i", true, at(105))
	if want := (observe.Loss{Sign: "provider", At: at(100), StatusAt: at(100)}); !ok || lost != want {
		t.Errorf("the loss is %+v, want %+v", lost, want)
	}
	if got := replaced(s, 105, 1); got != nil {
		t.Errorf("replaced twice: %v", got)
	}
	known.pending("next")
	if j := joined(s, 105); j.Instances[0].Immediate || !j.Instances[1].Immediate {
		t.Errorf("immediate are %+v, want the replacement", j.Instances)
	}
}

// TestLossThatIsNone: a broken stream alone loses nothing, and a new one ends the loss.
func TestLossThatIsNone(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	r := known.running("i", 0)
	s.See(at(1), shows(r, provider.StateRunning, 1))
	s.Connected("i")
	s.Disconnected("i", at(100))
	if got := replaced(s, 101, 1); got != nil {
		t.Errorf("replaced: %v", got)
	}
	s.See(at(103), shows(r, provider.StateStopped, 103))
	lost, _ := s.StartCreate("next", "i", true, at(104))
	if want := (observe.Loss{Sign: "disconnect", At: at(100), StatusAt: at(103)}); lost != want {
		t.Errorf("the loss is %+v, want %+v", lost, want)
	}

	s = observe.New(known, true, began)
	s.See(at(1), shows(r, provider.StateRunning, 1))
	s.Disconnected("i", at(100))
	s.Connected("i")
	s.Disconnected("i", at(200))
	s.See(at(203), shows(r, provider.StateStopped, 203))
	if lost, _ := s.StartCreate("next", "i", true, at(204)); !lost.At.Equal(at(200)) {
		t.Errorf("lost at %v, want when the last stream broke", lost.At)
	}
}
