package plan

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
)

// replacement tells the reasons of which a group sees one at a time.
func replacement(reason string) bool {
	switch reason {
	case ReasonReplaceAsked, ReasonUnhealthy, ReasonExpired, ReasonForcedExpiry, ReasonDrift:
		return true
	default:
		return false
	}
}
