package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
)

// kind is what is specific to one kind of record, each of which is one object. K identifies a
// record.
type kind[K comparable, V any] interface {
	table() string // of the cache
	prefix() string
	key(k K) string
	// parse parses a key. It may come from a listing of a bucket with arbitrary objects.
	parse(key string) (K, error)
	// decode decodes a record and checks that it matches its key.
	decode(body []byte, k K) (V, error)
	encode(v V) ([]byte, error)
	header(v V) (epoch, rev uint64)
	// older reports whether a stored version is older than the known one, which is then kept
	// beside it. It is always false for kinds whose stored version always counts.
	older(found, known V) bool
	// recalls reports whether the last known version is kept after a record is gone.
	recalls() bool
	// admit returns an error if a record can't coexist with the others. The caller holds
	// objects.mu.
	admit(k K) error
	// changed updates indexes; was or is is nil if there is no record. The caller holds
	// objects.mu.
	changed(k K, was, is *V)
}

// objects holds all records of one kind in memory. Safe for concurrent use; changes of one
// record are serialized.
type objects[K comparable, V any] struct {
	kind[K, V]
	cfg   Config
	cache *cache // nil: no cache
	term  *atomic.Uint64
	locks locks[K]

	mu        sync.RWMutex
	entries   map[K]entry[V]
	malformed map[string]malformed[K] // by key
	known     map[K]V                 // later versions of records that are gone or were replaced by an older one
	doubts    map[K]bool              // records with a write of unknown outcome
}

// entry is a record as last read or written.
type entry[V any] struct {
	value V // never changed in place
	etag  object.ETag
	// landed is the epoch of the term in which this process wrote it; 0 if it was only read. A
	// version that was only read may still be replaced by a late write of an earlier term.
	landed uint64
	// read is the epoch of the term in which it was last read from the store, and not from a listing: a
	// listing may be late, and show the etag of an earlier version.
	read uint64
}

// malformed is a malformed object as last read, or one that the store refuses to return.
type malformed[K comparable] struct {
	of    K // zero: its key is not a record's
	err   error
	etag  object.ETag
	epoch uint64 // as far as it can be read
}

func newObjects[K comparable, V any](cfg Config, c *cache, term *atomic.Uint64, k kind[K, V]) *objects[K, V] {
	return &objects[K, V]{
		kind: k, cfg: cfg, cache: c, term: term, entries: map[K]entry[V]{}, malformed: map[string]malformed[K]{},
		known: map[K]V{}, doubts: map[K]bool{},
	}
}

func (o *objects[K, V]) entry(k K) (entry[V], bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	e, ok := o.entries[k]
	return e, ok
}

// keys returns the keys of all records, unsorted.
func (o *objects[K, V]) keys() []K {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.Collect(maps.Keys(o.entries))
}

// set stores a record. The caller holds the record's lock.
func (o *objects[K, V]) set(k K, e entry[V]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var was *V
	if old, ok := o.entries[k]; ok {
		was = &old.value
	}
	o.entries[k] = e
	o.changed(k, was, &e.value)
}

// drop removes a record. The caller holds the record's lock.
func (o *objects[K, V]) drop(k K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if old, ok := o.entries[k]; ok {
		delete(o.entries, k)
		o.changed(k, &old.value, nil)
	}
}

// highestEpoch returns the highest epoch of all records, and of malformed objects as far as it
// can be read.
func (o *objects[K, V]) highestEpoch() (highest uint64) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, e := range o.entries {
		epoch, _ := o.header(e.value)
		highest = max(highest, epoch)
	}
	for _, m := range o.malformed {
		if inReach(m.epoch, o.term.Load()) == nil {
			highest = max(highest, m.epoch)
		}
	}
	return highest
}

// read is decode for what another process may have written. The rev is bounded here and not in
// decode, so that every readable record can also be written.
func (o *objects[K, V]) read(body []byte, k K) (entry[V], error) {
	v, err := o.decode(body, k)
	if err != nil {
		return entry[V]{}, err
	}
	epoch, rev := o.header(v)
	if err := record.CheckNumber("rev", rev); err != nil {
		return entry[V]{}, err
	}
	if t, ok := o.kind.(timed[V]); ok {
		known, _ := o.entry(k)
		v = t.arrived(v, known.value, o.cfg.now(), o.cfg.Writer)
	}
	return entry[V]{value: v}, inReach(epoch, o.term.Load())
}

// store puts an object into memory, and into the cache if it was read from the store. If a known
// record can't be read any more, its last version is kept: what it describes still exists.
func (o *objects[K, V]) store(k K, found fetched) bool {
	if found.fresh {
		defer o.confirm(k, found.term)
	}
	e, err := o.read(found.Body, k)
	if err != nil {
		o.setMalformed(found.Key, malformed[K]{of: k, err: err, etag: found.ETag, epoch: readEpoch(found.Body)})
		return false
	}
	e.etag = found.ETag
	if old, ok := o.entry(k); ok && old.etag == found.ETag {
		e = old // also with the times as they arrived
	}
	behind := o.retain(k, e.value)
	o.set(k, e)
	o.clearMalformed(found.Key)
	if found.fresh && !behind {
		o.cache.put(o.table(), found.Key, row{etag: found.ETag, body: found.Body})
	}
	return true
}

// retain keeps the known version beside a stored one that is older. The cache keeps the known
// version.
func (o *objects[K, V]) retain(k K, found V) (older bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was, ok := o.known[k]
	if !ok {
		e, there := o.entries[k]
		was, ok = e.value, there
	}
	if ok && o.older(found, was) {
		o.known[k] = was
		return true
	}
	delete(o.known, k)
	return false
}

// remember keeps the cached version of a record that has to be read.
func (o *objects[K, V]) remember(k K, body []byte) {
	if !o.recalls() {
		return
	}
	e, err := o.read(body, k)
	if err != nil {
		return
	}
	o.know(k, e.value)
}

// know keeps the known version of a record, unless one is kept already.
func (o *objects[K, V]) know(k K, was V) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.known[k]; !ok {
		o.known[k] = was
	}
}

// reload syncs one record with the store. An object that the store refuses to return is noted as
// one that can't be read. The caller holds the record's lock.
func (o *objects[K, V]) reload(ctx context.Context, k K) (gone bool, err error) {
	key := o.key(k)
	found, err := o.fetch(ctx, key)
	if errors.Is(err, object.ErrNotFound) {
		o.forget(k)
		return true, nil
	}
	if err != nil {
		return false, o.denied(k, object.Info{Key: key}, err)
	}
	o.store(k, found)
	return false, nil
}

// denied notes an object that the store refuses to return as one that can't be read, and returns
// any other error. Its etag is that of the last listing or read.
func (o *objects[K, V]) denied(k K, info object.Info, err error) error {
	if !errors.Is(err, object.ErrRefused) {
		return err
	}
	if info.ETag == "" {
		was, _ := o.malformedAt(info.Key)
		known, _ := o.entry(k)
		info.ETag = cmp.Or(was.etag, known.etag)
	}
	o.setMalformed(info.Key, malformed[K]{of: k, err: err, etag: info.ETag})
	return nil
}

// forget drops a record from memory and cache, except the last known version of kinds that
// keep it. The caller holds the record's lock.
func (o *objects[K, V]) forget(k K) {
	if !o.recalls() {
		o.abandon(k)
		return
	}
	if e, ok := o.entry(k); ok {
		o.know(k, e.value)
	}
	o.drop(k)
}

// recall reads a record that memory lacks by its key, since a listing may have missed it, and
// stores it. It reports whether memory has it then; a malformed one is recorded as such.
func (o *objects[K, V]) recall(ctx context.Context, k K) (found bool, err error) {
	unlock, err := o.locks.lock(ctx, k)
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, known := o.entry(k); known {
		return true, nil
	}
	gone, err := o.reload(ctx, k)
	if err != nil {
		return false, err
	}
	if gone {
		o.clearMalformed(o.key(k))
		return false, nil
	}
	_, found = o.entry(k)
	return found, nil
}

// prepare encodes a record and decodes it again, so that memory holds exactly what every other
// reader sees, with times as they were measured.
func (o *objects[K, V]) prepare(k K, v V) (body []byte, stored V, err error) {
	if body, err = o.encode(v); err != nil {
		return nil, stored, fmt.Errorf("encode record: %w", err)
	}
	if stored, err = o.decode(body, k); err != nil {
		return nil, stored, err
	}
	if t, ok := o.kind.(timed[V]); ok {
		stored = t.measured(stored, v, o.cfg.now())
	}
	return body, stored, nil
}

// write puts a record. The caller holds its lock. Memory follows the object even if the fence
// then fails.
func (o *objects[K, V]) write(ctx context.Context, fence Fence, k K, v V, pre object.Precondition) (stored V, err error) {
	body, stored, err := o.prepare(k, v)
	if err != nil {
		return stored, err
	}
	key := o.key(k)
	etag, err := put(ctx, fence, o.cfg.Store, key, body, pre)
	if etag != "" {
		o.mu.Lock()
		delete(o.known, k)
		o.mu.Unlock()
		o.set(k, entry[V]{value: stored, etag: etag, landed: fence.Epoch()})
		o.clearMalformed(key)
		o.cache.put(o.table(), key, row{etag: etag, body: body})
	}
	if errors.Is(err, ErrConflict) {
		err = o.conflict(ctx, fence, k, body, err)
	}
	return stored, err
}

// conflict reads the stored version after a conflict. It may be this very write, sent earlier
// by a call with an unknown outcome.
func (o *objects[K, V]) conflict(ctx context.Context, fence Fence, k K, body []byte, err error) error {
	if _, reloadErr := o.reload(ctx, k); reloadErr != nil {
		return errors.Join(err, reloadErr)
	}
	if m, ok := o.malformedAt(o.key(k)); ok {
		return fmt.Errorf("%w: the stored record is malformed: %w", err, m.err)
	}
	e, ok := o.entry(k)
	if !ok {
		return err
	}
	there, encodeErr := o.encode(e.value)
	if encodeErr != nil || !bytes.Equal(there, body) {
		return err
	}
	return fence.Act(ctx, func(context.Context) error { return nil })
}

// put does a conditional write under the fence. The etag is set if the write has definitely
// landed, with or without an error.
func put(
	ctx context.Context, fence Fence, store object.Store, key string, body []byte, pre object.Precondition,
) (etag object.ETag, err error) {
	err = fence.Act(ctx, func(ctx context.Context) (err error) {
		etag, err = object.PutConfirmed(ctx, store, key, body, pre)
		return err
	})
	return etag, err
}

func (o *objects[K, V]) setMalformed(key string, m malformed[K]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.malformed[key] = m
}

func (o *objects[K, V]) clearMalformed(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.malformed, key)
}

func (o *objects[K, V]) malformedAt(key string) (malformed[K], bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	m, ok := o.malformed[key]
	return m, ok
}

// malformedKeys returns the keys of all malformed objects, sorted.
func (o *objects[K, V]) malformedKeys() []string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.Sorted(maps.Keys(o.malformed))
}

// readAgain makes the next comparison reread the objects whose epoch was out of reach: they
// may be of terms before the one that starts.
func (o *objects[K, V]) readAgain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, m := range o.malformed {
		if m.epoch > maxEpoch {
			m.etag = ""
			o.malformed[key] = m
		}
	}
}
