package fleet

import "slices"

// Phase is the lifecycle phase of an instance. Only the shard's leader changes it,
// and only forward:
//
//	pending   the record exists; a VM may or may not exist yet
//	running   the instance registered: its nonce is consumed and bound to its key
//	draining  work is being moved off it, until acknowledged or past the deadline
//	deleting  the provider is asked to delete the VM until it reports not found
//	deleted   a tombstone, kept for a while to answer late requests
//
// Unhealthy is a condition with a reason, not a phase.
type Phase string

// The phases, in lifecycle order.
const (
	Pending  Phase = "pending"
	Running  Phase = "running"
	Draining Phase = "draining"
	Deleting Phase = "deleting"
	Deleted  Phase = "deleted"
)

// next returns the valid transitions. A pending instance may be drained because its
// registration can be in progress. Only a pending instance whose create definitely made
// nothing becomes deleted without deleting first.
func (p Phase) next() []Phase {
	switch p {
	case Pending:
		return []Phase{Running, Draining, Deleting, Deleted}
	case Running:
		return []Phase{Draining, Deleting}
	case Draining:
		return []Phase{Deleting}
	case Deleting:
		return []Phase{Deleted}
	default:
		return nil
	}
}

// Phases returns all phases in lifecycle order.
func Phases() []Phase { return []Phase{Pending, Running, Draining, Deleting, Deleted} }

// CanMove reports whether an instance may move from p to q.
func (p Phase) CanMove(q Phase) bool { return slices.Contains(p.next(), q) }

// Valid reports whether p is a phase.
func (p Phase) Valid() bool { return slices.Contains(Phases(), p) }

// Active reports whether an instance in this phase counts towards its group's size.
func (p Phase) Active() bool { return p == Pending || p == Running }

// Ending reports whether the instance's machine is being deleted or gone, so that the
// instance may no longer act.
func (p Phase) Ending() bool { return p == Deleting || p == Deleted }
