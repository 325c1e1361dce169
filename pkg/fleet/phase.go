package fleet

import "slices"

// Phase is where an instance is in its life. Only the shard's leader moves it,
// and only forward:
//
//	pending   the record exists; a VM may or may not exist yet
//	running   the instance registered: its nonce is spent and bound to its key
//	draining  it is to go; work is being moved off it until acknowledged or due
//	deleting  the provider is being asked to delete it until it says not found
//	deleted   a tombstone, kept for a while so that late news finds an answer
//
// Being unhealthy is a condition with a reason, never a phase.
type Phase string

// The phases, in order of life.
const (
	Pending  Phase = "pending"
	Running  Phase = "running"
	Draining Phase = "draining"
	Deleting Phase = "deleting"
	Deleted  Phase = "deleted"
)

// next lists the legal moves. A pending instance may be drained because its
// registration can be under way; deleting is the only door to deleted, but for
// a pending one whose create certainly made nothing.
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

// Phases lists all phases in order of life.
func Phases() []Phase { return []Phase{Pending, Running, Draining, Deleting, Deleted} }

// CanMove reports whether an instance may go from p to q.
func (p Phase) CanMove(q Phase) bool { return slices.Contains(p.next(), q) }

// Valid reports whether p is a phase.
func (p Phase) Valid() bool { return slices.Contains(Phases(), p) }

// Active reports whether the instance counts towards its group's size, as far
// as its phase goes.
func (p Phase) Active() bool { return p == Pending || p == Running }

// Ending reports whether the instance's machine is on its way out or gone, so that
// nothing may be done in its name any more.
func (p Phase) Ending() bool { return p == Deleting || p == Deleted }
