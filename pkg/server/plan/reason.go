package plan

import "strings"

// The reasons for which an instance is created or removed. They are stored in records and
// shown to users.
const (
	ReasonScaleUp             = "scale-up"
	ReasonScaleDown           = "scale-down"
	ReasonReplacement         = "replacement" // created before another instance is removed
	ReasonLeaving             = "asked-to-leave"
	ReasonGroupRemoved        = "group-removed"
	ReasonReplaceAsked        = "asked-to-be-replaced" // a managed instance was deleted by its id
	ReasonDeleteAsked         = "asked-to-be-deleted"  // an on-demand instance was deleted by its id
	ReasonUnhealthy           = "unhealthy"
	ReasonVMDown              = "vm-down"
	ReasonVMGone              = "vm-gone"
	ReasonNotice              = "termination-notice"
	ReasonShutdown            = "shut-down"
	ReasonRegistrationTimeout = "registration-timeout"
	ReasonCreateTimeout       = "create-timeout" // an on-demand instance could not be created in time
	ReasonStray               = "never-acted-on"
	ReasonExpired             = "expired"
	ReasonForcedExpiry        = "forced-expiry"
	ReasonOnDemandExpired     = "on-demand-expired"
	ReasonDrift               = "infra-drift"
	ReasonNotCreated          = "not-created" // a create is retried
	ReasonRetention           = "retention-over"
	ReasonCreateFailed        = "create-failed" // the create was definitely refused: nothing was made
)

// Word returns a reason without the details that may follow it after a colon.
func Word(reason string) string {
	word, _, _ := strings.Cut(reason, ":")
	return word
}

// Announced reports whether a removal is for what the instance's agent had announced.
func Announced(reason string) bool {
	return Word(reason) == ReasonShutdown
}

// Failure reports whether a removal for this reason, of an instance that had not settled,
// counts as a failure of the definition that the instance was built from. A removal that was
// requested, or announced by the machine or the provider, does not, nor does a create that never
// began.
func Failure(reason string) bool {
	switch Word(reason) {
	case ReasonCreateFailed, ReasonVMDown, ReasonVMGone, ReasonUnhealthy, ReasonRegistrationTimeout:
		return true
	default:
		return false
	}
}

// DependsOnOthers reports whether a removal for this reason is right only as long as other instances of the
// group are as they are known: enough of them, or a replacement, have to work.
func DependsOnOthers(reason string) bool {
	reason = Word(reason)
	return reason == ReasonScaleDown || replacement(reason)
}

// replacement reports whether an instance removed for this reason was replaced first.
func replacement(reason string) bool {
	switch reason {
	case ReasonReplaceAsked, ReasonUnhealthy, ReasonExpired, ReasonForcedExpiry, ReasonDrift:
		return true
	default:
		return false
	}
}

// surging reports whether the replacement of an instance removed for this reason counts
// towards the shard's surge.
func surging(reason string) bool {
	switch reason {
	case ReasonExpired, ReasonForcedExpiry, ReasonDrift:
		return true
	default:
		return false
	}
}
