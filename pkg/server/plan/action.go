package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Kind is what an action does.
type Kind string

// The kinds of action.
const (
	// Create creates a new instance of the group: record first, then VM.
	Create Kind = "create"
	// Resume repeats the provider's create for a pending record, with the same id.
	Resume Kind = "resume"
	// Drain moves an instance to draining, with the deadline At.
	Drain Kind = "drain"
	// Delete moves an instance to deleting, if it is not yet, and asks the
	// provider to delete it.
	Delete Kind = "delete"
	// Tombstone moves an instance to deleted: its machine is gone or never existed.
	Tombstone Kind = "tombstone"
	// Prune removes a tombstone's record.
	Prune Kind = "prune"
	// Forget removes the dynamic entry of a removed group that is empty.
	Forget Kind = "forget"
	// ClearLeaving removes ids of instances that are gone from the group's leaving list.
	ClearLeaving Kind = "settle"
	// ForgetAbort drops an abort that is not in effect any more from the group's record.
	ForgetAbort Kind = "forget-abort"
	// Wake requests another decision at At. At most one, and the last action.
	Wake Kind = "wake"
)

// Decision is the result of Next.
type Decision struct {
	Actions []Action
	// Surge is the number of instances beyond its size that the group has for rotation and
	// expiry once the actions are carried out: replacements and draining instances.
	Surge int
	// Starved means that the group would create more if the shard's surge allowed it.
	Starved bool
	// Converged means that the group has a pace, is at size and has no instance on
	// probation, so the back-off may end.
	Converged bool
	// Rotation is how far the group is with the replacement of instances that work.
	Rotation fleet.Rotation
}

// Action is one step. ID is empty for Create, Forget, ClearLeaving, ForgetAbort and Wake.
type Action struct {
	Kind      Kind
	ID        fleet.InstanceID
	Reason    string
	At        time.Time          // Drain: delete at; Wake: when
	IDs       []fleet.InstanceID // ClearLeaving
	Refused   string             // ForgetAbort: what the group refused
	Immediate bool               // Create: replaces an Immediate instance, without delay
}
