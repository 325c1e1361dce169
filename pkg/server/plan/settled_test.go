package plan_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/plan"
)

func TestSettled(t *testing.T) {
	s := settings()
	for _, tt := range []struct {
		name, words string
		settle      time.Duration
		want        bool
	}{
		{"pending", "a pending", 0, false},
		{"registered a moment ago", "a running registered=0s", 2 * time.Minute, false},
		{"almost", "a running registered=1m59s", 2 * time.Minute, false},
		{"just", "a running registered=2m", 2 * time.Minute, true},
		{"with its registration", "a running registered=0s", 0, true},
		{"whatever became of it since", "a deleting registered=3m", 2 * time.Minute, true},
	} {
		i := parse(t, "size=0 | "+tt.words).Instances[0]
		s.Settle = tt.settle
		if got := plan.Settled(i.Instance, s, now); got != tt.want {
			t.Errorf("%s: settled is %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestFailure covers every reason, so that a new one must be added here.
func TestFailure(t *testing.T) {
	for reason, want := range map[string]bool{
		plan.ReasonCreateFailed: true, plan.ReasonVMDown: true, plan.ReasonVMGone: true, plan.ReasonShutdown: false,
		plan.ReasonUnhealthy: true, plan.ReasonRegistrationTimeout: true, plan.ReasonVMDown + ": exit code 137": true,
		plan.ReasonScaleDown: false, plan.ReasonLeaving: false, plan.ReasonGroupRemoved: false, plan.ReasonReplaceAsked: false,
		plan.ReasonDeleteAsked: false, plan.ReasonNotice: false, plan.ReasonCreateTimeout: false, plan.ReasonStray: false,
		plan.ReasonExpired: false, plan.ReasonForcedExpiry: false, plan.ReasonOnDemandExpired: false, plan.ReasonDrift: false,
		plan.ReasonRetention: false, "": false,
	} {
		if got := plan.Failure(reason); got != want {
			t.Errorf("an end because of %q is a failure: %v, want %v", reason, got, want)
		}
	}
}
