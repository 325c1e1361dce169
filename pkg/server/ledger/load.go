package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// Stats describe a Load.
type Stats struct {
	Listed    int // objects in the store
	Read      int // of these, read from the store
	Cached    int // of these, taken from the cache or from memory
	Vanished  int // known before and no longer in the store
	Malformed []fleet.Malformed
}

// Load syncs the ledger with the store: it lists, and reads only objects whose etag differs
// from the known one, including group records. A record that memory or the cache knows and the
// listing lacks is read by its key before it counts as gone. Malformed objects, and those that
// the store refuses to return, are reported and left alone, unless it refuses all records of
// instances. After any other failure the ledger is incomplete, and Load has to be called
// again; it does not repeat completed reads.
func (l *Ledger) Load(ctx context.Context) (Stats, error) {
	known := l.cache.rows(tableInstances)
	var c *comparison[instanceKey, storedInstance]
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() (err error) { c, err = l.records.compare(ctx, known, l.miss); return err })
	work.Go(func() error {
		_, err := l.groupRecords.compare(ctx, l.cache.rows(tableGroups), func(config.GroupRecord) {})
		return err
	})
	work.Go(func() error { return l.refuseUnreleased(ctx) })
	if err := work.Wait(); err != nil {
		return Stats{}, fmt.Errorf("load ledger: %w", err)
	}
	if err := c.usable(); err != nil {
		return Stats{}, fmt.Errorf("load ledger: %w", err)
	}
	l.cache.forgetRead()
	return Stats{
		Listed: len(c.listed), Read: c.read, Cached: len(c.listed) - c.read,
		Vanished: len(c.vanished), Malformed: l.Malformed(),
	}, nil
}

// refuseUnreleased refuses a store with the groups object of a version before the first release.
func (l *Ledger) refuseUnreleased(ctx context.Context) error {
	key := "groups/" + l.cfg.Shard + ".jsonc"
	_, err := l.cfg.Store.Get(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s is of a version before the first release, which is not supported: "+
		"remove it and all groups/%s/*.jsonc, and recreate the groups", key, l.cfg.Shard)
}

// Relist compares the ledger with the store, as Load does, and returns the records that are
// new and those that are gone, sorted. A record that is being changed is compared after the
// change.
func (l *Ledger) Relist(ctx context.Context) (appeared, vanished []fleet.InstanceID, err error) {
	l.vanished.Store(0)
	c, err := l.records.compare(ctx, nil, l.miss)
	if err == nil {
		err = c.usable()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("relist ledger: %w", err)
	}
	for _, k := range c.appeared {
		appeared = append(appeared, k.id)
	}
	for _, g := range c.vanished {
		vanished = append(vanished, g.key.id)
	}
	slices.Sort(appeared)
	slices.Sort(vanished)
	return appeared, vanished, nil
}

// miss counts a record that is gone.
func (l *Ledger) miss(i storedInstance) {
	if i.Phase != fleet.Deleted {
		l.vanished.Add(1)
	}
}

// Fetch reads one record from the store, for use when the ledger may be stale, as a standby's
// always is. It does not change memory. It returns ErrNotFound if there is no record.
func (l *Ledger) Fetch(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error) {
	k := instanceKey{tenant, id}
	o, err := l.cfg.Store.Get(ctx, l.records.key(k))
	if err != nil {
		return fleet.Instance{}, fmt.Errorf("fetch %v: %w", k, err)
	}
	e, err := l.records.read(o.Body, k)
	if err != nil {
		return fleet.Instance{}, fmt.Errorf("fetch %v: %w", k, err)
	}
	return e.value.record(), nil
}

// Find is Recall, and returns the record. ok is false if the store has none; a record that
// can't be read is an error.
func (l *Ledger) Find(ctx context.Context, tenant string, id fleet.InstanceID) (i fleet.Instance, ok bool, err error) {
	if i, ok = l.Get(id); ok {
		return i, true, nil
	}
	if ok, err = l.Recall(ctx, tenant, id); err != nil {
		return fleet.Instance{}, false, err
	}
	if m, malformed := l.records.malformedAt(l.records.key(instanceKey{tenant, id})); !ok && malformed {
		return fleet.Instance{}, false, fmt.Errorf("the record of instance %s can't be read: %w", id, m.err)
	}
	i, ok = l.Get(id)
	return i, ok, nil
}

// Recall reads a record that memory lacks by its key, since a listing may have missed it, and
// stores it. It reports whether memory has it then; a malformed one is recorded as such.
func (l *Ledger) Recall(ctx context.Context, tenant string, id fleet.InstanceID) (found bool, err error) {
	if _, known := l.Get(id); known {
		return true, nil
	}
	return l.records.recall(ctx, instanceKey{tenant, id})
}

// Reread syncs one record with the store, since a listing may have shown an earlier version of
// it.
func (l *Ledger) Reread(ctx context.Context, tenant string, id fleet.InstanceID) error {
	k := instanceKey{tenant, id}
	unlock, err := l.records.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = l.records.reload(ctx, k)
	return err
}
