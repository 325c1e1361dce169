package spread

import (
	"cmp"
	"slices"
)

// Machine is one that could be named to leave.
type Machine struct {
	// ID is the instance's.
	ID string
	// Shard is the place of its shard among those of the pool.
	Shard int
	// Annotated: somebody asked Cluster API for just this machine to go.
	Annotated bool
	// Tainted: the Cluster Autoscaler has marked its node.
	Tainted bool
}

// Victims returns those that leave by name when a pool shrinks: the annotated ones
// first, then those with the taint, each by id, and no more than the pool shrinks by.
func Victims(by int, machines []Machine) []Machine {
	var named []Machine
	for _, m := range machines {
		if m.Annotated || m.Tainted {
			named = append(named, m)
		}
	}
	slices.SortFunc(named, func(a, b Machine) int {
		if a.Annotated != b.Annotated {
			if a.Annotated {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return named[:max(min(by, len(named)), 0)]
}

// Excess is by how much a pool has to shrink: what is known of it beyond replicas.
func Excess(replicas int, shards []Shard) int {
	known := 0
	for _, s := range shards {
		if !s.Unknown {
			known += s.Size
		}
	}
	return max(known-replicas, 0)
}
