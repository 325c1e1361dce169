package spread

import (
	"cmp"
	"slices"
)

// Machine is a candidate for removal.
type Machine struct {
	// ID is the instance's.
	ID string
	// Shard is the index of its shard in the pool.
	Shard int
	// Deleting: the Machine is being deleted, which its shard does not know yet.
	Deleting bool
	// Leaving: its shard is removing it already, and does not count it. It can be named only to
	// remove another one of that shard.
	Leaving bool
	// Annotated: the Machine has Cluster API's annotation for deletion.
	Annotated bool
	// Tainted: the Cluster Autoscaler has tainted its node.
	Tainted bool
}

// Victims returns the machines to remove by name when a pool shrinks by that many: those that
// go anyway first, so that no other one goes besides, then annotated ones, then tainted ones,
// and then annotated or tainted ones that are leaving already, each by ID.
func Victims(by int, machines []Machine) []Machine {
	var named []Machine
	for _, m := range machines {
		if m.Deleting || m.Annotated || m.Tainted {
			named = append(named, m)
		}
	}
	slices.SortFunc(named, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.ID, b.ID))
	})
	return named[:max(min(by, len(named)), 0)]
}

// rank orders named machines; the lowest goes first.
func (m Machine) rank() int {
	switch {
	case m.Leaving:
		return 3
	case m.Deleting:
		return 0
	case m.Annotated:
		return 1
	}
	return 2
}

// Excess returns by how much a pool has to shrink: its known size beyond replicas.
func Excess(replicas int, shards []Shard) int {
	known := 0
	for _, s := range shards {
		if !s.Unknown {
			known += s.Size
		}
	}
	return max(known-replicas, 0)
}
