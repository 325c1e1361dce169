package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/plan"
)

func TestConditionOf(t *testing.T) {
	tests := []struct {
		name, words string
		want        plan.Condition
	}{
		{"well", "a running", plan.Condition{Worsens: now.Add(2*time.Minute + 50*time.Second)}},
		{"pending", "a pending", plan.Condition{}},
		{"not made yet", "a pending unmade gone", plan.Condition{}},
		{"gone", "a running gone", plan.Condition{Reason: plan.ReasonVMGone, Lost: true}},
		{"down", "a running down silent=9m", plan.Condition{Reason: plan.ReasonVMDown, Lost: true}},
		{"on its way out", "a draining gone", plan.Condition{}},
		{"notice", "a running notice=2m", plan.Condition{Reason: plan.ReasonNotice, Lost: true}},
		{"silent", "a running silent=3m", plan.Condition{Reason: plan.ReasonUnhealthy}},
		{"silent at its own pace", "a running silent=4m interval=2m", plan.Condition{Worsens: now.Add(2 * time.Minute)}},
		{"silent on demand", "a running ondemand silent=3m", plan.Condition{Reason: plan.ReasonUnhealthy}},
		{"said goodbye", "a running shutting=10s", plan.Condition{Worsens: now.Add(20 * time.Second)}},
		{"silent after its goodbye", "a running silent=3m shutting=10s",
			plan.Condition{Reason: plan.ReasonUnhealthy, Worsens: now.Add(20 * time.Second)}},
		{"did not come back", "a running shutting=30s", plan.Condition{Reason: plan.ReasonShutdown, Lost: true}},
		{"left to its owner", "a running ondemand shutting=30s", plan.Condition{Worsens: now.Add(2*time.Minute + 50*time.Second)}},
	}
	for _, tt := range tests {
		i := parseInstance(t, strings.Fields(tt.words))
		if got := plan.ConditionOf(&i, settings(), now.Add(-24*time.Hour), now); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	i := parseInstance(t, strings.Fields("a running silent=3m"))
	if got := plan.ConditionOf(&i, settings(), now.Add(-time.Minute), now); got.Reason != "" {
		t.Errorf("silent before the takeover: %+v", got)
	}
	i.KnownSince = now.Add(-time.Minute)
	if got := plan.ConditionOf(&i, settings(), now.Add(-24*time.Hour), now); got.Reason != "" || !got.Worsens.Equal(now.Add(2*time.Minute)) {
		t.Errorf("silent before its record was known: %+v", got)
	}
	i = parseInstance(t, strings.Fields("a running"))
	ahead := now.Add(14 * time.Minute)
	i.Health.LastReportAt, i.RegisteredAt, i.KnownSince = time.Time{}, &ahead, now.Add(-4*time.Minute)
	if got := plan.ConditionOf(&i, settings(), now.Add(-24*time.Hour), now); got.Reason != plan.ReasonUnhealthy {
		t.Errorf("silent since it registered, by a clock that was ahead: %+v", got)
	}
}
