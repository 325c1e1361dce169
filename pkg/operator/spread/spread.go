package spread

// Shard is a pool's part on one shard.
type Shard struct {
	// Size is the part's present size; 0 if there is no part yet.
	Size int
	// Unknown: the part's existence and size are not known yet.
	Unknown bool
	// Fixed: its size counts, but can't be changed now.
	Fixed bool
	// Selected: it may get instances. Shards that are not selected shrink first.
	Selected bool
	// Named is how many of its instances are named for removal.
	Named int
	// Missing is how many of Size have no machine yet. They are removed after the named
	// instances and before the others.
	Missing int
}

// Next returns the new size of each shard, in order, for a pool of that many replicas.
// Starting from the present sizes, it first removes named instances from their own shards, at
// most as many as the pool shrinks by, then missing instances, and then levels the sizes with
// the remaining difference. It never removes from one shard while it adds to another. On a
// tie, earlier shards have more.
//
// An unknown shard keeps its Size, whatever it is. While the pool grows, the shard is assumed
// to hold its equal share already; while the pool shrinks, to hold nothing. So the pool may at
// worst turn out too large, and no instance is removed that another shard would have to create
// again.
//
// If no shard is selected the pool can't grow, and if all are fixed or unknown it can't
// change: the sum then differs from replicas.
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

// shares returns equal sizes for the selected shards, the remainder for the first ones.
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
	come := make([]int, len(shards)) // how many of the sizes have machines
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

// before reports whether shard i, which comes after j, shrinks before it.
func before(shards []Shard, sizes, come []int, i, j int) bool {
	if shards[i].Selected != shards[j].Selected {
		return !shards[i].Selected
	}
	if waits, other := sizes[i] > come[i], sizes[j] > come[j]; waits != other {
		return waits
	}
	return sizes[i] >= sizes[j]
}
