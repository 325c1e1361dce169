package observe_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/pacing"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// TestFailedYoung: an instance counts once, by what its loss and its record say.
func TestFailedYoung(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	remove := func(reason string, ids ...fleet.InstanceID) (actions []plan.Action) {
		for _, id := range ids {
			actions = append(actions, plan.Action{Kind: plan.Delete, ID: id, Reason: reason})
		}
		return actions
	}
	old, young := known.running("old", 0), known.running("young", 80)
	pending := known.pending("pending")
	known.running("survivor", 10)
	for _, r := range []fleet.Instance{old, young, pending} {
		a := shows(r, provider.StateStopped, 100)
		a.VM.Reason = "out of memory"
		s.See(at(100), a)
	}
	v := view(joined(s, 110), 110)
	failed, _ := s.Ended(v, remove(plan.ReasonVMDown, "old", "young", "pending", "unknown"))
	want := []pacing.Failure{
		{ID: "young", Began: at(70), At: at(110), Young: true, Age: 20 * time.Second, Reason: problems.ReasonDied,
			Message: "the machine of instance young failed within 1m0s of its registration (server.create_backoff.settle): vm-down: out of memory"},
		{ID: "pending", Began: began, At: at(110), Young: true, Reason: problems.ReasonDied,
			Message: "the machine of instance pending ended before its agent registered: vm-down: out of memory"},
	}
	if !slices.Equal(failed, want) {
		t.Errorf("failed:\n%+v\nwant\n%+v", failed, want)
	}
	if again, _ := s.Ended(v, remove(plan.ReasonVMDown, "old", "young", "pending")); len(again) > 0 {
		t.Errorf("counted twice: %+v", again)
	}
	known.pending("mute")
	known.pending("judged")
	s.Judged([]fleet.InstanceID{"judged"})
	failed, _ = s.Ended(view(joined(s, 400), 400), remove(plan.ReasonRegistrationTimeout, "mute", "judged"))
	if len(failed) != 1 || failed[0].Reason != problems.ReasonNotRegistered ||
		failed[0].Message != "instance mute did not register within 5m0s (server.garbage_collection.registration_timeout)" {
		t.Errorf("failed: %+v", failed)
	}
	if got, _ := s.Ended(view(joined(s, 400), 400), remove(plan.ReasonScaleDown, "survivor")); len(got) > 0 {
		t.Errorf("a removal that was asked for counts as a failure: %+v", got)
	}
	lives := s.Living(joined(s, 400).Instances, fleet.Group{Key: web}, at(400), failed)
	if len(lives) != 1 || lives[0] != (plan.Life{ID: "survivor", Age: 390 * time.Second}) {
		t.Errorf("living are %+v", lives)
	}
}

// TestLossBeforeItSettled: an instance that is removed only after the time at which it would have
// settled has failed by then all the same.
func TestLossBeforeItSettled(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	s.See(at(100), shows(known.running("young", 80), provider.StateStopped, 100))
	v := view(joined(s, 300), 300)
	failed, _ := s.Ended(v, []plan.Action{{Kind: plan.Delete, ID: "young", Reason: plan.ReasonVMDown}})
	if len(failed) != 1 || failed[0].Age != 20*time.Second {
		t.Errorf("failed: %+v", failed)
	}
}

// TestWhoseOutcomesCount: neither on-demand instances nor those of another definition count, dead or
// alive; those that drain without having failed are alive.
func TestWhoseOutcomesCount(t *testing.T) {
	known := records{}
	s := observe.New(known, true, began)
	for id, change := range map[fleet.InstanceID]func(*fleet.Instance){
		"a-plain":    func(*fleet.Instance) {},
		"b-other":    func(i *fleet.Instance) { i.Hashes.Infra = "other" },
		"c-demand":   func(i *fleet.Instance) { i.OnDemand = true },
		"d-drains":   func(i *fleet.Instance) { i.Phase, i.Drain = fleet.Draining, &fleet.Drain{Reason: plan.ReasonScaleDown} },
		"e-failed":   func(i *fleet.Instance) { i.Phase, i.Drain = fleet.Draining, &fleet.Drain{Reason: plan.ReasonUnhealthy} },
		"f-deleting": func(i *fleet.Instance) { i.Phase = fleet.Deleting },
	} {
		i := known.running(id, 10)
		change(&i)
		known.add(i)
	}
	v := view(joined(s, 30), 30)
	var living, died, done []fleet.InstanceID
	for _, l := range s.Living(v.Instances, v.Group, v.Now, nil) {
		living = append(living, l.ID)
	}
	if want := []fleet.InstanceID{"a-plain", "d-drains"}; !slices.Equal(living, want) {
		t.Errorf("living are %v, want %v", living, want)
	}
	for _, reason := range []string{plan.ReasonVMGone, plan.ReasonShutdown} {
		s := observe.New(known, true, began)
		joined(s, 30)
		var actions []plan.Action
		for id := range known {
			actions = append(actions, plan.Action{Kind: plan.Delete, ID: id, Reason: reason})
		}
		failed, announced := s.Ended(v, actions)
		for _, f := range failed {
			died = append(died, f.ID)
		}
		done = append(done, announced...)
	}
	if want := []fleet.InstanceID{"a-plain"}; !slices.Equal(died, want) || !slices.Equal(done, want) {
		t.Errorf("%v failed and %v are done, want %v each", died, done, want)
	}
}

// TestExplain: the provider's reason is told for the end of a machine, and a problem only if its
// agent had not registered.
func TestExplain(t *testing.T) {
	for reason, want := range map[string]string{
		plan.ReasonVMDown: "vm-down: out of memory", plan.ReasonVMGone: "vm-gone: out of memory", plan.ReasonScaleDown: "scale-down",
	} {
		if got := (observe.Snapshot{Why: "out of memory"}).Explain(reason); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := (observe.Snapshot{}).Explain(reason); got != reason {
			t.Errorf("%q, want %q", got, reason)
		}
	}
	for name, c := range map[string]struct {
		phase  fleet.Phase
		reason string
		want   bool
	}{
		"pending, down":       {fleet.Pending, plan.ReasonVMDown, true},
		"pending, gone":       {fleet.Pending, plan.ReasonVMGone, true},
		"pending, not wanted": {fleet.Pending, plan.ReasonScaleDown, false},
		"running, down":       {fleet.Running, plan.ReasonVMDown, false},
	} {
		if err := observe.DiedYoung(fleet.Instance{ID: "i", Phase: c.phase}, c.reason, "why"); (err != nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
