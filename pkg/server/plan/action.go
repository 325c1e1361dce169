package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Kind is what an action does.
type Kind string

// The kinds of action.
const (
	// Create makes one new instance of the group: record first, then VM.
	Create Kind = "create"
	// Resume repeats the provider's create for a pending record, same id.
	Resume Kind = "resume"
	// Drain moves an instance to draining until At at the latest.
	Drain Kind = "drain"
	// Delete moves an instance to deleting, if it is not yet, and asks the
	// provider to delete it.
	Delete Kind = "delete"
	// Tombstone moves an instance to deleted: nothing of it is left, or nothing
	// of it ever was.
	Tombstone Kind = "tombstone"
	// Prune removes a tombstone's record.
	Prune Kind = "prune"
	// Forget removes the group's dynamic entry: it was to go, and is empty.
	Forget Kind = "forget"
	// Settle takes ids out of the group's leaving list: they are gone.
	Settle Kind = "settle"
	// Wake asks for another decision at At. At most one, and the last action.
	Wake Kind = "wake"
)

// Decision is what is to be done about a group now.
type Decision struct {
	Actions []Action
	// Surge is how many instances beyond its size the group has, once the actions are
	// carried out, for rotation and expiry: those that came, and those that drain.
	Surge int
	// Starved: it would have more if the shard let it.
	Starved bool
	// Content: it is bound by a pace, has all that it wants, and nobody in it is on trial
	// any more.
	Content bool
}

// Action is one step. ID is empty for Create, Forget, Settle and Wake.
type Action struct {
	Kind   Kind
	ID     fleet.InstanceID
	Reason string
	At     time.Time          // Drain: delete at; Wake: when
	IDs    []fleet.InstanceID // Settle
	Owed   bool               // Create: it stands in for an Owed instance, and waits for nothing
}
