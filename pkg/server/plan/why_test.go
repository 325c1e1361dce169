package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestWhy: each action says which rule asked for it, and by which values.
func TestWhy(t *testing.T) {
	for _, c := range []struct{ state, rule, want string }{
		{"size=3 | a running", "rule:scale", "group web has 1 of 3 instances"},
		{"size=1 | a draining", "rule:scale", "group web has 0 of 1 instances (draining: 1)"},
		{"size=1 infra=new max-surge=1 | a running infra=old", "rule:replacement",
			"group web has 1 of 1 instances; this one replaces another, which leaves when it runs (made from another definition: 1)"},
		{"size=1 | a running asked", "rule:replacement",
			"group web has 1 of 1 instances; this one replaces another, which leaves when it runs (replaced by request: 1)"},
		{"size=2 max-surge=1 forced=25h | a running | b running", "rule:replacement",
			"group web has 2 of 2 instances; this one replaces another, which leaves when it runs (too old: 1)"},
		{"size=1 max-surge=1 | a running silent=3m", "rule:replacement",
			"group web has 1 of 1 instances; this one replaces another, which leaves when it runs (silent: 1)"},
		{"size=1 | a running | b running", "rule:scale",
			"group web has 2 instances and size 1; this one is the oldest; it drains until 2026-03-01T12:05:00Z at the latest"},
		{"size=1 paused | a running | b running", "rule:scale", "group web has 2 instances and size 1; this one is the youngest; it drains"},
		{"size=2 infra=new eligible=24h paused | a running infra=old asked | b running infra=old", "rule:replacement",
			"group web has 2 of 2 instances; this one replaces another, which leaves when it runs (replaced by request: 1)"},
		{"size=1 | a running silent=3m | b running | c running", "rule:scale",
			"group web has 3 instances and size 1; this one is silent; it drains"},
		{"size=1 files | a running | b running without-files", "rule:scale", "group web has 2 instances and size 1; this one lacks its files"},
		{"size=1 | a running | b pending", "rule:scale", "group web has 2 instances and size 1; this one is not running yet"},
		{"size=1 | a running asked | b running | c running", "rule:scale", "this one was to be replaced by request"},
		{"size=1 leaving=b | a running | b running", "rule:scale", "its removal was requested with the group's size; it drains"},
		{"size=1 removed | a running", "rule:scale", "group web is deleted; it drains"},
		{"size=0 drain=0s | a running down", "rule:health", "its machine has stopped"},
		{"size=0 | a running gone", "rule:health", "its machine is gone"},
		{"size=0 | a running ondemand notice=2m", "rule:health",
			"the end of its machine was announced for 2026-03-01T12:02:00Z; it drains until 2026-03-01T12:02:00Z at the latest"},
		{"size=0 | a running shutting=31s", "rule:health",
			"its agent reported at 2026-03-01T11:59:29Z that it was being stopped, and has not come back within 30s; it drains"},
		{"size=1 max-surge=1 | a running silent=3m | b running", "rule:health",
			"its agent is silent: it reported last at 2026-03-01T11:57:00Z, and 3 reports are missing; it drains"},
		{"size=1 max-surge=1 | a running unreported | b running", "rule:health",
			"it has not reported since the takeover at 2026-02-28T12:00:00Z"},
		{"size=0 | a pending created=6m", "rule:creation", "its agent did not register within 5m0s"},
		{"size=0 | a pending unmade stray", "rule:creation", "its create was never sent; no machine was made for it"},
		{"size=0 | a pending unmade ondemand created=11m", "rule:creation", "no machine was made within 10m0s; no machine was made for it"},
		{"size=1 infra=new max-surge=1 | a running infra=old | b running infra=new", "rule:rotation",
			"it was made from definition old, and group web has new now; it drains"},
		{"size=1 eligible=24h max-surge=1 | a running | z running", "rule:expiry",
			"it is 25h0m0s old: instances are replaced from an age of 24h0m0s; it drains"},
		{"size=1 forced=24h50m max-surge=1 | a running | z running", "rule:expiry",
			"it is 25h0m0s old: instances are replaced in any case from an age of 24h50m0s; it drains"},
		{"size=0 ondemand=24h | a running ondemand", "rule:expiry", "it is 25h0m0s old: on-demand instances are deleted at an age of 24h0m0s"},
		{"size=0 | a running ondemand asked", "rule:request", "its removal was requested at 2026-03-01T11:59:59Z; it drains"},
		{"size=0 | a draining acked", "rule:scale", "its drain was acknowledged at 2026-03-01T12:00:00Z"},
		{"size=0 | a draining until=-1s", "rule:scale", "the time for its drain is over"},
		{"size=0 | a draining down", "rule:scale", "its machine stopped while it was draining"},
		{"size=0 | a draining gone", "rule:scale", "its machine is gone, while it was draining"},
		{"size=0 | a draining notice=0s", "rule:scale", "its drain is over: the end of its machine was announced for 2026-03-01T12:00:00Z"},
		{"size=0 | a deleting gone reason=infra-drift", "rule:rotation", "its machine is gone"},
	} {
		t.Run(c.state, func(t *testing.T) {
			v := parse(t, c.state)
			d := plan.Next(v)
			if len(d.Actions) == 0 || d.Actions[0].Kind == plan.Wake {
				t.Fatal("nothing is decided")
			}
			a := d.Actions[0]
			if rule := plan.RuleOf(a.Reason); rule != c.rule {
				t.Errorf("%s is of %s", a.Reason, rule)
			}
			got := v.Why(a, v.Members()).String()
			if !strings.Contains(got, c.want) {
				t.Errorf("%s: %s", format(v, d.Actions[:1]), got)
			}
		})
	}
}

// TestWhyLost: a replacement says which instance was lost, and how, also when that is being deleted
// already.
func TestWhyLost(t *testing.T) {
	for state, want := range map[string]string{
		"size=1 | a running gone":           "its machine is gone",
		"size=1 | a running notice=2m":      "the end of its machine was announced for 2026-03-01T12:02:00Z",
		"size=1 | a deleted reason=vm-down": "its machine has stopped",
	} {
		v := parse(t, state)
		if got := v.Lost(&v.Instances[0]).String(); got != "it replaces "+string(id("a"))+": "+want {
			t.Errorf("%s: %s", state, got)
		}
	}
}

// TestWhyIsOfItsMoment: what is told later does not depend on what happened since.
func TestWhyIsOfItsMoment(t *testing.T) {
	v := parse(t, "size=1 | a running silent=3m | b running")
	why := v.Why(plan.Next(v).Actions[0], v.Members())
	before := why.String()
	v.Instances[0].Health.LastReportAt = now.Add(time.Hour)
	v.Instances[0].Instance = &fleet.Instance{}
	if after := why.String(); after != before {
		t.Errorf("%s, and then %s", before, after)
	}
}
