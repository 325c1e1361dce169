package plan

import "strings"

// Why an instance leaves, or a create is asked for. Reasons are stored in
// records and shown to people.
const (
	ReasonScaleUp             = "scale-up"
	ReasonScaleDown           = "scale-down"
	ReasonReplacement         = "replacement" // the one more that comes before another leaves
	ReasonLeaving             = "asked-to-leave"
	ReasonGroupRemoved        = "group-removed"
	ReasonReplaceAsked        = "asked-to-be-replaced" // a managed instance was deleted by its id
	ReasonDeleteAsked         = "asked-to-be-deleted"  // an on-demand one was
	ReasonUnhealthy           = "unhealthy"
	ReasonVMDown              = "vm-down"
	ReasonVMGone              = "vm-gone"
	ReasonNotice              = "termination-notice"
	ReasonShutdown            = "shut-down"
	ReasonRegistrationTimeout = "registration-timeout"
	ReasonCreateTimeout       = "create-timeout" // an on-demand one was asked for in vain for too long
	ReasonStray               = "never-acted-on"
	ReasonExpired             = "expired"
	ReasonForcedExpiry        = "forced-expiry"
	ReasonOnDemandExpired     = "on-demand-expired"
	ReasonDrift               = "infra-drift"
	ReasonNotCreated          = "not-created" // a create that is repeated
	ReasonRetention           = "retention-over"
	ReasonCreateFailed        = "create-failed" // the create was certainly refused: nothing was made
)

// Failure reports whether an end for a reason, as it was decided or as a record has it,
// tells against the definition that the instance was built from, if the instance had
// not settled. That it was asked for, announced by the provider, or never begun does
// not.
func Failure(reason string) bool {
	reason, _, _ = strings.Cut(reason, ":") // the provider's words may follow
	switch reason {
	case ReasonCreateFailed, ReasonVMDown, ReasonVMGone, ReasonShutdown, ReasonUnhealthy, ReasonRegistrationTimeout:
		return true
	default:
		return false
	}
}

// replacement tells the reasons for which one leaves whose replacement has come.
func replacement(reason string) bool {
	switch reason {
	case ReasonReplaceAsked, ReasonUnhealthy, ReasonExpired, ReasonForcedExpiry, ReasonDrift:
		return true
	default:
		return false
	}
}

// surging tells the reasons for which one leaves for whose replacement the shard was
// asked, or might have been.
func surging(reason string) bool {
	switch reason {
	case ReasonExpired, ReasonForcedExpiry, ReasonDrift:
		return true
	default:
		return false
	}
}
