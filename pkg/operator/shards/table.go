package shards

// table is the groups or the instances of a shard, by key. Every update has a tick, so that an
// answer does not override updates that came after its request.
type table[T any] struct {
	rows map[string]*row[T]
	left map[string]uint64 // removed keys with their ticks, while an older list may still arrive
}

type row[T any] struct {
	value T
	at    uint64 // the tick of the last update
	// told: the last update came from the stream, which will report the removal too.
	told bool
	// old recognizes stream events from before an answer; nil if there was no answer, or the
	// stream has reported something newer.
	old func(T) bool
	// ignored is the last event that old recognized; nil if none.
	ignored *T
}

// kind has the functions for a table's values.
type kind[T any] struct {
	same   func(a, b T) bool
	living func(T) bool // false for a tombstone, whose expiry no stream reports
}

func newTable[T any]() table[T] {
	return table[T]{rows: map[string]*row[T]{}, left: map[string]uint64{}}
}

// get returns the value of a key, or the zero value.
func (t *table[T]) get(key string) (v T) {
	if r := t.rows[key]; r != nil {
		return r.value
	}
	return v
}

// all returns the wanted values, in no order.
func (t *table[T]) all(wanted func(T) bool) (all []T) {
	for _, r := range t.rows {
		if wanted(r.value) {
			all = append(all, r.value)
		}
	}
	return all
}

// since reports whether a key was updated after a tick.
func (t *table[T]) since(key string, tick uint64) bool {
	if r := t.rows[key]; r != nil {
		return r.at > tick
	}
	return t.left[key] > tick
}

// set applies a stream event. It reports whether the value changed.
func (t *table[T]) set(key string, v T, tick uint64, same func(a, b T) bool) bool {
	r := t.rows[key]
	switch {
	case r != nil && r.old != nil && r.old(v):
		r.at, r.told, r.ignored = tick, true, &v // it exists, but this value is outdated
		return false
	}
	t.put(key, v, tick, nil)
	t.rows[key].told = true
	return r == nil || !same(r.value, v)
}

// put sets a value that did not come from the stream.
func (t *table[T]) put(key string, v T, tick uint64, old func(T) bool) {
	t.rows[key] = &row[T]{value: v, at: tick, old: old}
	delete(t.left, key)
}

// renew drops all old functions and applies the events that they had ignored. It returns the
// changed values.
func (t *table[T]) renew(same func(a, b T) bool) (different []T) {
	for _, r := range t.rows {
		if r.ignored != nil && !same(r.value, *r.ignored) {
			r.value = *r.ignored
			different = append(different, r.value)
		}
		r.old, r.ignored = nil, nil
	}
	return different
}

// drop removes a key. It reports whether it existed.
func (t *table[T]) drop(key string, tick uint64) bool {
	_, there := t.rows[key]
	delete(t.rows, key)
	t.left[key] = tick
	return there
}

// dropUntold removes all keys without an update after a tick.
func (t *table[T]) dropUntold(since, tick uint64) (dropped []T) {
	for key, r := range t.rows {
		if r.at <= since {
			dropped = append(dropped, r.value)
			t.drop(key, tick)
		}
	}
	return dropped
}

// list applies a complete list that was requested after asked. Keys that were updated since
// are left alone: the order is unknown, and the stream reports later changes. It returns the
// changed values.
//
// Living values that the list lacks stay: a deposed leader may still answer, while the streams
// are at its successor. If the stream reported a value, it will report the removal; if not, it
// may never do so: then there is doubt, which the next snapshot resolves.
func (t *table[T]) list(all map[string]T, asked, tick uint64, k kind[T]) (different []T, doubt bool) {
	for key, v := range all {
		if t.since(key, asked) {
			continue
		}
		if r := t.rows[key]; r == nil || !k.same(r.value, v) {
			t.put(key, v, tick, nil)
			different = append(different, v)
		}
	}
	for key, r := range t.rows {
		switch _, there := all[key]; {
		case there || r.at > asked:
		case !k.living(r.value):
			different = append(different, r.value)
			t.drop(key, tick)
		case !r.told:
			doubt = true
		}
	}
	for key, at := range t.left {
		if at <= asked {
			delete(t.left, key)
		}
	}
	return different, doubt
}
