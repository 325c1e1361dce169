package shards

// table is what a shard told of its groups, or of its instances, by key. Every word
// has a tick, so that an answer to a question tells nothing of what was heard after
// the question was asked.
type table[T any] struct {
	rows map[string]*row[T]
	left map[string]uint64 // what is gone, and when; as long as a list that is older may come
}

type row[T any] struct {
	value T
	at    uint64 // the tick of the last word
	// told: the stream has told of it as the last one, so it will tell of its end, too.
	told bool
	// old recognises what the stream told before an answer that came past it; nil:
	// no answer has, or the stream has told something newer.
	old func(T) bool
	// ignored is what old recognised last; nil: nothing yet.
	ignored *T
}

// kind is what a table is of.
type kind[T any] struct {
	same   func(a, b T) bool
	living func(T) bool // else it is a tombstone, whose end no stream tells
}

func newTable[T any]() table[T] {
	return table[T]{rows: map[string]*row[T]{}, left: map[string]uint64{}}
}

// get returns what is known of a key, or the zero value.
func (t *table[T]) get(key string) (v T) {
	if r := t.rows[key]; r != nil {
		return r.value
	}
	return v
}

// all returns what is wanted, in no order.
func (t *table[T]) all(wanted func(T) bool) (all []T) {
	for _, r := range t.rows {
		if wanted(r.value) {
			all = append(all, r.value)
		}
	}
	return all
}

// since reports whether there was a word of a key after a tick.
func (t *table[T]) since(key string, tick uint64) bool {
	if r := t.rows[key]; r != nil {
		return r.at > tick
	}
	return t.left[key] > tick
}

// tell takes what the stream tells. It reports whether that is different.
func (t *table[T]) tell(key string, v T, tick uint64, same func(a, b T) bool) bool {
	r := t.rows[key]
	switch {
	case r != nil && r.old != nil && r.old(v):
		r.at, r.told, r.ignored = tick, true, &v // it is there, though not like this any more
		return false
	}
	t.put(key, v, tick, nil)
	t.rows[key].told = true
	return r == nil || !same(r.value, v)
}

// put sets what is known of a key, not from the stream.
func (t *table[T]) put(key string, v T, tick uint64, old func(T) bool) {
	t.rows[key] = &row[T]{value: v, at: tick, old: old}
	delete(t.left, key)
}

// renew ends what answers have kept the stream from telling. What it told in vain counts,
// and is returned as far as it is different.
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

// drop takes a key out. It reports whether it was there.
func (t *table[T]) drop(key string, tick uint64) bool {
	_, there := t.rows[key]
	delete(t.rows, key)
	t.left[key] = tick
	return there
}

// dropUntold takes out all of which there was no word after a tick.
func (t *table[T]) dropUntold(since, tick uint64) (dropped []T) {
	for key, r := range t.rows {
		if r.at <= since {
			dropped = append(dropped, r.value)
			t.drop(key, tick)
		}
	}
	return dropped
}

// list takes the answer to a question after all that was asked after a tick. What
// there was a word of since is left alone: which of the two is newer nobody knows, and
// the stream tells again what becomes different. It returns all that is different now.
//
// What is living and not in the answer stays: a leader that was deposed, and does not
// know it yet, answers as well, while the streams are at its successor. Of what the
// stream told, the stream tells the end. Where it was not the stream that told of a
// row, it may never do so: then there is doubt, which the next snapshot ends.
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
