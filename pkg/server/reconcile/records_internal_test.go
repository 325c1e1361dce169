package reconcile

import (
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestTooLate: timeouts don't apply to instances that registered after the decision.
func TestTooLate(t *testing.T) {
	for name, c := range map[string]struct {
		phase  fleet.Phase
		was    string // the reason in its record
		reason string
		want   bool
	}{
		"still pending":          {fleet.Pending, "", plan.ReasonCreateTimeout, false},
		"registered":             {fleet.Running, "", plan.ReasonCreateTimeout, true},
		"registered in time":     {fleet.Running, "", plan.ReasonRegistrationTimeout, true},
		"deleting for it":        {fleet.Deleting, plan.ReasonCreateTimeout, plan.ReasonCreateTimeout, false},
		"deleting for another":   {fleet.Deleting, plan.ReasonDeleteAsked, plan.ReasonCreateTimeout, true},
		"running, another cause": {fleet.Running, "", plan.ReasonVMGone, false},
	} {
		if got := tooLate(fleet.Instance{Phase: c.phase, Reason: c.was}, c.reason); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
