package observe_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestSee: how soon a change of a VM's state needs a pass, and which answers change none.
func TestSee(t *testing.T) {
	known := records{}
	r := known.running("i", 0)
	s := observe.New(known, false, began)
	failed := lacks(r, 8)
	failed.Err, failed.Unlisted = errors.New("timeout"), true
	for n, c := range []struct {
		answer  observe.Answer
		changed bool
		pass    observe.Urgency
		vm      plan.VM
	}{
		{shows(r, provider.StatePending, 1), true, observe.Unhurried, plan.VMAlive},
		{shows(r, provider.StateRunning, 2), true, observe.Nothing, plan.VMAlive},
		{shows(r, provider.StateRunning, 3), false, observe.Nothing, plan.VMAlive},
		{shows(r, provider.StateStopped, 1), false, observe.Nothing, plan.VMAlive}, // older
		{lacks(r, 4), false, observe.Nothing, plan.VMAlive},                        // one is not enough
		{shows(r, provider.StateStopped, 5), true, observe.Urgent, plan.VMDown},
		{shows(r, provider.StateRunning, 6), false, observe.Nothing, plan.VMDown}, // reads lag
		{failed, false, observe.Nothing, plan.VMDown},
		{lacks(r, 9), false, observe.Nothing, plan.VMDown},
		{lacks(r, 11), true, observe.Urgent, plan.VMGone},
	} {
		news := s.See(at(20), c.answer)
		if (len(news) > 0) != c.changed || s.Get("i").VM != c.vm {
			t.Errorf("answer %d: %v, news %+v", n, s.Get("i").VM, news)
		} else if c.changed && (news[0].Pass != c.pass || !news[0].Changed || news[0].Record.ID != "i") {
			t.Errorf("answer %d: news %+v", n, news)
		}
		if confirm := s.Get("i").ConfirmAt; n == 4 && !confirm.Equal(at(6)) {
			t.Errorf("to be confirmed at %v, want two seconds after the answer", confirm)
		}
	}
}

// TestEvidence: what shows that a machine is gone is told.
func TestEvidence(t *testing.T) {
	known := records{}
	r := known.running("i", 0)
	s := observe.New(known, false, began)
	for n, c := range []struct {
		answer observe.Answer
		want   string
	}{
		{shows(r, provider.StateRunning, 1), ""},
		{lacks(r, 2), " (not found by 1 call since " + stamp(2) + ")"},
		{shows(r, provider.StateRunning, 3), ""},
		{lacks(r, 4), " (not found by 1 call since " + stamp(4) + ")"},
		{lacks(r, 7), " (not found by 2 calls since " + stamp(4) + ")"},
	} {
		s.See(at(20), c.answer)
		if got := s.Get("i").Evidence(); got != c.want {
			t.Errorf("answer %d: %q, want %q", n, got, c.want)
		}
	}
}

func stamp(n float64) string { return at(n).UTC().Format(time.RFC3339) }

// TestNames: a machine is found by its names and addresses until it ends; they remain known.
func TestNames(t *testing.T) {
	known := records{}
	r := known.running("i", 0)
	s := observe.New(known, true, began)
	addr := netip.MustParseAddr("10.0.0.1")
	a := shows(r, provider.StateRunning, 1)
	a.VM.DNSNames, a.VM.Addresses = []string{"i.internal"}, []netip.Addr{addr}
	find := func(want int) {
		t.Helper()
		if len(s.Named("i.internal")) != want || len(s.NamedBelow("internal")) != want || len(s.Addressed(addr)) != want {
			t.Errorf("found %v, %v and %v", s.Named("i.internal"), s.NamedBelow("internal"), s.Addressed(addr))
		}
		if m := s.Machine("i"); !slices.Equal(m.Names, a.VM.DNSNames) || !slices.Equal(m.Addresses, a.VM.Addresses) || m.Running != (want > 0) {
			t.Errorf("the machine is %+v", m)
		}
	}
	s.See(at(1), a)
	find(1)
	s.See(at(2), shows(r, provider.StateRunning, 2)) // without them
	find(1)
	s.See(at(3), shows(r, provider.StateStopped, 3))
	find(0)
	s.Described("i", at(4))
	if m := s.Machine("i"); !m.AskedAt.Equal(at(4)) {
		t.Errorf("asked at %v", m.AskedAt)
	}
	delete(known, "i")
	s.Forget(nil, at(5))
	if m := s.Machine("i"); m.Names != nil || m.AskedAt != (time.Time{}) {
		t.Errorf("of no instance: %+v", m)
	}
}
