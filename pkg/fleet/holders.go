package fleet

import "slices"

// Holders maps a key, such as a name or an address, to the instances that hold it. Several
// instances may hold the same key. Not safe for concurrent use.
type Holders[K comparable] map[K][]InstanceID

// Add makes an instance a holder of a key. Idempotent.
func (h Holders[K]) Add(key K, id InstanceID) {
	if !slices.Contains(h[key], id) {
		h[key] = append(h[key], id)
	}
}

// Remove removes an instance from the holders of a key. Slices that were read before are
// not modified.
func (h Holders[K]) Remove(key K, id InstanceID) {
	n := slices.Index(h[key], id)
	switch {
	case n < 0:
	case len(h[key]) == 1:
		delete(h, key)
	default:
		h[key] = slices.Concat(h[key][:n], h[key][n+1:])
	}
}
