package ledger

import (
	"context"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// Unread returns the records of a group, without on-demand instances and tombstones, that this term has
// neither read from the store nor written: a late listing may have shown the etag of an earlier version.
func (l *Ledger) Unread(key fleet.GroupKey) (unread []fleet.InstanceID) {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	for _, r := range l.index.groups[key] {
		if !r.OnDemand && r.Phase != fleet.Deleted && l.records.unconfirmed(keyOf(*r)) {
			unread = append(unread, r.ID)
		}
	}
	return unread
}

// Confirm reads a known record, which then is no longer unread. After an error, ErrNotFound included,
// memory is as before: only a listing shows how many records are gone.
func (l *Ledger) Confirm(ctx context.Context, tenant string, id fleet.InstanceID) error {
	k := instanceKey{tenant, id}
	unlock, err := l.records.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := l.records.fetch(ctx, l.records.key(k))
	if err != nil {
		return fmt.Errorf("read the record of instance %s: %w", id, err)
	}
	l.records.store(k, found)
	return nil
}

// fetched is an object as the cache has it or, if it is fresh, as read from the store by a request that
// began in a term of this process; 0: before the first one.
type fetched struct {
	object.Object
	fresh bool
	term  uint64
}

// fetch reads an object from the store.
func (o *objects[K, V]) fetch(ctx context.Context, key string) (fetched, error) {
	term := o.term.Load()
	found, err := o.cfg.Store.Get(ctx, key)
	return fetched{Object: found, fresh: true, term: term}, err
}

// confirm notes that a known record has been read from the store in a term. A damaged one stays as it
// was known.
func (o *objects[K, V]) confirm(k K, term uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.entries[k]; ok {
		e.read = max(e.read, term)
		o.entries[k] = e
	}
}

// unconfirmed reports whether this term has neither read a known record from the store nor written it.
// The caller holds mu.
func (o *objects[K, V]) unconfirmed(k K) bool {
	e, ok := o.entries[k]
	return ok && max(e.read, e.landed) < o.term.Load()
}
