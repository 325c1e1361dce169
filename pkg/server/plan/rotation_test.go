package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/fleet"
	_ "github.com/nstance/nstance/pkg/rapidseed"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestRotationSaysWhatItAwaits: how many instances are left, and what keeps the next one.
func TestRotationSaysWhatItAwaits(t *testing.T) {
	for state, want := range map[string]string{
		"size=1 infra=new | a running infra=new":        "",
		"size=0 infra=new | a running infra=old":        "",
		"size=1 infra=new paused | a running infra=old": "",
		"size=1 infra=new | a running infra=old":        "1 AwaitsReplacement",
		"size=2 infra=new | a running infra=old" +
			" | b running infra=old": "2 AwaitsReplacement",
		"size=1 infra=new | a running infra=old | b pending infra=new": "1 AwaitsReplacement",
		"size=1 infra=new | a running infra=old" +
			" | b running infra=new disconnected": "1 AwaitsReplacement",
		"size=1 infra=new files | a running infra=old" +
			" | b running infra=new without-files": "1 AwaitsReplacement",
		"size=1 settle=2m infra=new | a running infra=old" +
			" | b running infra=new registered=90s": "1 AwaitsSettled +30s",
		"size=1 settle=2m infra=new | a running infra=old | b running infra=new registered=2m":                            "",
		"size=2 infra=new | a running infra=old | b running infra=old | c running infra=new":                              "1 AwaitsLeaving",
		"size=1 infra=new | a draining reason=infra-drift infra=old | b running infra=old":                                "1 AwaitsLeaving",
		"size=2 infra=new | a running infra=old | b running infra=new silent=3m | c running infra=new":                    "1 AwaitsSilent",
		"size=1 infra=new surge=0 | a running infra=old":                                                                  "1 AwaitsShardSurge",
		"size=1 infra=new probation=1 | a running infra=old | b draining reason=scale-down | c draining reason=unhealthy": "1 AwaitsLeaving",
		"size=1 infra=new probation=1 holdoff=10s | a running infra=old":                                                  "1 AwaitsCreates",
		"size=2 infra=new probation=1 holdoff=10s | a running infra=old":                                                  "1 AwaitsSize",
		// One that is being created is not ready, and none that leaves.
		"size=1 infra=new | a running infra=old | b pending infra=new busy": "1 AwaitsReplacement",
		"size=4 max-surge=3 surge=2 infra=new | a running infra=old | b running infra=old | c running infra=old | d running infra=old" +
			" | e pending infra=new busy | f pending infra=new busy": "4 AwaitsReplacement",
		"size=2 infra=new probation=1 settling | a running infra=old | b running infra=old | c pending infra=new busy": "2 AwaitsReplacement",
		// The shard's surge is used by the group's own draining instance, or by others.
		"size=2 max-surge=2 surge=1 infra=new | a draining reason=infra-drift infra=old" +
			" | b running infra=old | c running infra=new": "1 AwaitsLeaving",
		"size=2 max-surge=2 surge=0 infra=new | a running infra=old" +
			" | b running infra=old": "2 AwaitsShardSurge",
		"size=2 max-surge=2 surge=1 infra=new probation=1 holdoff=10s | a running infra=old" +
			" | b running infra=old": "2 AwaitsCreates",
		// What is created makes up for a larger size, or for a silent one.
		"size=3 infra=new | a running infra=old":                                 "1 AwaitsSize",
		"size=2 infra=new | a running infra=old | b running infra=new silent=3m": "1 AwaitsSilent",
		"size=2 infra=new | a running infra=old | b running infra=old silent=3m": "2 AwaitsSilent",
		"size=2 infra=new | a running infra=old asked" +
			" | b running infra=old": "2 AwaitsReplacement",
		"size=1 infra=new | a running infra=old asked" +
			" | b running infra=new disconnected": "1 AwaitsReplacement",
		"size=1 infra=new surge=0 | a running infra=new | b running infra=new | c running infra=new": "",
		"size=2 max-surge=2 infra=new | a running infra=old asked" +
			" | b running infra=old | c draining reason=scale-down": "2 AwaitsReplacement",
		"size=1 settle=2m infra=new | a running infra=old asked registered=90s" +
			" | b running infra=new disconnected": "1 AwaitsReplacement",
		"size=2 max-surge=2 settle=2m infra=new | a running infra=old | b running infra=old | c running infra=new" +
			" | d running infra=new registered=90s": "1 AwaitsSettled +30s",
		// The forced age: the oldest leaves first, and the last one counts, too.
		"size=2 settle=2m forced=24h58m30s | a running | b running | c running registered=90s": "2 AwaitsSettled +30s",
		"size=1 settle=2m forced=24h59m30s | a running | z running registered=90s":             "1 AwaitsSettled +30s",
		"size=1 forced=24h | a running": "1 AwaitsReplacement",
		// Those that lack their files leave first, and need fewer others for it.
		"size=2 settle=2m infra=new files | a running infra=old without-files | b running infra=old without-files" +
			" | c running infra=new registered=90s": "2 AwaitsSettled +30s",
		// The one that is being removed does not count.
		"size=2 settle=2m infra=new | a running infra=old busy | b running infra=old | c running infra=new registered=90s" +
			" | d running infra=new": "1 AwaitsSettled +30s",
		// Two of the three that stay have to settle, and the second one does so later.
		"size=2 settle=2m infra=new | a running infra=old" +
			" | b running infra=new registered=1m | c running infra=new registered=20s": "1 AwaitsSettled +1m40s",
	} {
		v := parse(t, state)
		if got := rotationText(plan.Next(v).Rotation); got != want {
			t.Errorf("state: %s\n got: %s\nwant: %s", state, got, want)
		}
	}
}

// TestRotationWithoutARegistration: a record of a running instance may lack it. Then it has no time to settle.
func TestRotationWithoutARegistration(t *testing.T) {
	v := parse(t, "size=3 settle=2m infra=new | a running infra=old | b running infra=old | c running infra=new"+
		" | d running infra=new registered=90s")
	v.Instances[2].RegisteredAt = nil
	if got := rotationText(plan.Next(v).Rotation); got != "2 AwaitsReplacement" {
		t.Errorf("got %s", got)
	}
}

func rotationText(r fleet.Rotation) string {
	if r == (fleet.Rotation{}) {
		return ""
	}
	text := fmt.Sprintf("%d %s", r.Left, r.Awaits)
	if !r.Until.IsZero() {
		text += " +" + r.Until.Sub(now).String()
	}
	return text
}

// TestRotationIsTrue: whatever the view, a rotation counts the running instances that are outdated or too
// old and stay, and says what they await: at the time when enough others have settled one of them leaves, and
// instances are leaving if it awaits these.
func TestRotationIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyView().Draw(t, "view")
		d := plan.Next(v)
		r, due := d.Rotation, dueAndStaying(v, d.Actions)
		if r.Left != len(due) || (r.Left > 0) != (r.Awaits != "") || (r.Awaits == fleet.AwaitsSettled) != r.Until.After(v.Now) {
			t.Fatalf("%+v, want %v", r, due)
		}
		if r.Awaits == fleet.AwaitsLeaving && !slices.ContainsFunc(v.Instances, func(i plan.Instance) bool {
			return i.Phase == fleet.Draining || i.Phase == fleet.Running && (i.Busy || named(d.Actions, i.ID))
		}) {
			t.Fatalf("%+v, and none is leaving", r)
		}
		if r.Awaits != fleet.AwaitsSettled {
			return
		}
		later := plan.Next(undisturbed(v, d.Actions, r.Until))
		if !slices.ContainsFunc(due, func(id fleet.InstanceID) bool { return named(later.Actions, id) }) {
			t.Fatalf("%+v of %v, and then none of these leaves: %+v", r, due, later)
		}
	})
}

// dueAndStaying are the managed running instances that are outdated or too old, and that nothing removes.
func dueAndStaying(v plan.View, actions []plan.Action) (due []fleet.InstanceID) {
	g := &v.Group
	if g.RolloutPaused || g.Disabled != "" || g.Removed || g.Size <= 0 {
		return nil
	}
	for n := range v.Instances {
		i := &v.Instances[n]
		if i.Phase != fleet.Running || i.OnDemand || i.Busy || named(actions, i.ID) {
			continue
		}
		old := false
		for _, age := range []time.Duration{v.Settings.EligibleAge, v.Settings.ForcedAge} {
			old = old || age > 0 && !i.CreatedAt.Add(age).After(v.Now)
		}
		if old || i.Hashes.Outdated(g.Hashes) {
			due = append(due, i.ID)
		}
	}
	return due
}

func named(actions []plan.Action, id fleet.InstanceID) bool {
	return slices.ContainsFunc(actions, func(a plan.Action) bool { return a.ID == id })
}

// undisturbed returns the view as it is later if the actions are still in progress and nothing else happens
// but that agents go on to report.
func undisturbed(v plan.View, actions []plan.Action, later time.Time) plan.View {
	v.Now, v.Instances = later, slices.Clone(v.Instances)
	for n := range v.Instances {
		i := &v.Instances[n]
		i.Busy = i.Busy || named(actions, i.ID)
		if i.Phase == fleet.Running && plan.ConditionOf(i, v.Settings, v.Takeover, now).Reason == "" {
			i.Health.LastReportAt, i.Health.ShuttingDownAt = later, time.Time{}
		}
	}
	return v
}
