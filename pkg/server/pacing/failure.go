package pacing

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// Failure is a create that the provider refused, or an instance that failed before it
// had settled.
type Failure struct {
	ID      fleet.InstanceID
	Began   time.Time // the create
	At      time.Time
	Young   bool          // the machine existed, but failed or did not register
	Age     time.Duration // since its registration
	Reason  string
	Message string
	Details string // follow the message, and may differ although the reason is the same
}

// ReasonFor maps the reason for which a plan removes an instance to the reason of the failure.
func ReasonFor(planned string) string {
	switch plan.Word(planned) {
	case plan.ReasonCreateFailed:
		return problems.ReasonProvider
	case plan.ReasonRegistrationTimeout:
		return problems.ReasonNotRegistered
	case plan.ReasonUnhealthy:
		return problems.ReasonSilent
	default:
		return problems.ReasonDied
	}
}

// Backoff is the back-off of failing creates, of a group or of an on-demand instance.
func Backoff(limit time.Duration) retry.Backoff {
	return retry.Backoff{First: min(time.Second, limit), Limit: limit}
}
