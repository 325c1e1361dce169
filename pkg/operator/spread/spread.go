package spread

// Shard is what is known of a pool's part on one shard.
type Shard struct {
	// Size is how many instances it is to have so far; 0 for one that has no part yet.
	Size int
	// Unknown: nobody can tell yet whether it has a part, and of which size.
	Unknown bool
	// Fixed: its size can't be changed now, and counts.
	Fixed bool
	// Selected: it may get instances. One that is not shrinks before all others.
	Selected bool
	// Named is how many instances leave it by name.
	Named int
	// Missing is how many of Size have not come so far. They leave before those that
	// have, and after the named ones.
	Missing int
}

// Next returns the size of each shard, in the order of shards, for a pool of so many
// replicas. It goes from what there is: named instances leave their own shard, no more
// of them than replicas shrink, then those are given up that have not come so far, and
// what then remains to be added or taken levels the sizes. A step never takes from one
// shard while it adds to another. Where it does not matter, the first shards have more.
//
// An unknown shard keeps its Size, whatever it says. While the pool grows it is taken
// to hold its equal share already, and while the pool shrinks to hold nothing: so what
// it turns out to have can at worst be too much, and no instance goes that another
// shard would have to make again.
//
// When nothing is selected the pool can't grow, and when all is fixed or unknown it
// can't change at all: the sum then differs from replicas.
func Next(replicas int, shards []Shard) []int {
	sizes := make([]int, len(shards))
	known, assumed := 0, 0
	share := shares(replicas, shards)
	for i, s := range shards {
		sizes[i] = s.Size
		if s.Unknown {
			assumed += share[i]
		} else {
			known += s.Size
		}
	}
	if known > replicas {
		shrink(known-replicas, shards, sizes)
	} else {
		grow(replicas-known-assumed, shards, sizes)
	}
	return sizes
}

// shares are equal parts for the selected shards, the rest for the first of them.
func shares(replicas int, shards []Shard) []int {
	selected := 0
	for _, s := range shards {
		if s.Selected {
			selected++
		}
	}
	parts := make([]int, len(shards))
	n := 0
	for i, s := range shards {
		if !s.Selected {
			continue
		}
		parts[i] = max(replicas, 0) / selected
		if n < max(replicas, 0)%selected {
			parts[i]++
		}
		n++
	}
	return parts
}

func grow(by int, shards []Shard, sizes []int) {
	for ; by > 0; by-- {
		best := -1
		for i, s := range shards {
			if s.Selected && !s.Unknown && !s.Fixed && (best < 0 || sizes[i] < sizes[best]) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		sizes[best]++
	}
}

func shrink(by int, shards []Shard, sizes []int) {
	come := make([]int, len(shards)) // how many of the sizes have come
	for i, s := range shards {
		come[i] = s.Size - s.Missing
		if s.Unknown || s.Fixed {
			continue
		}
		n := max(min(s.Named, sizes[i], by), 0)
		sizes[i] -= n
		come[i] -= n
		by -= n
	}
	for ; by > 0; by-- {
		best := -1
		for i, s := range shards {
			if !s.Unknown && !s.Fixed && sizes[i] > 0 && (best < 0 || before(shards, sizes, come, i, best)) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		sizes[best]--
	}
}

// before says whether shard i, which stands behind j, shrinks before it.
func before(shards []Shard, sizes, come []int, i, j int) bool {
	if shards[i].Selected != shards[j].Selected {
		return !shards[i].Selected
	}
	if waits, other := sizes[i] > come[i], sizes[j] > come[j]; waits != other {
		return waits
	}
	return sizes[i] >= sizes[j]
}
