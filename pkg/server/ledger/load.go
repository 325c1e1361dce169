package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
)

// Stats tell what a Load did.
type Stats struct {
	Listed    int // objects in the store
	Read      int // of these, read from the store
	Cached    int // of these, taken from the cache or from memory
	Vanished  int // records that were known and are no longer there
	Malformed []fleet.Malformed
}

// Load makes the ledger what the store holds: it lists, and reads only objects
// whose etag is not the known one, and the dynamic groups. What memory or the cache
// knows and the listing lacks is read by its key before it counts as gone. Malformed objects are reported and left
// alone. On any other failure the ledger is not whole, and Load is to be called
// again; what was read by then is not read again.
func (l *Ledger) Load(ctx context.Context) (Stats, error) {
	known := l.cache.instances()
	var c *comparison
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() (err error) { c, err = l.compare(ctx, known); return err })
	work.Go(func() error { return l.load(ctx) })
	if err := work.Wait(); err != nil {
		return Stats{}, fmt.Errorf("load ledger: %w", err)
	}
	l.cache.forgetRead()
	return Stats{
		Listed: len(c.listed), Read: c.read, Cached: len(c.listed) - c.read,
		Vanished: len(c.vanished), Malformed: l.Malformed(),
	}, nil
}

// Relist compares the ledger with the store, as Load does, and tells which
// records were not known before, and which known ones are no longer there.
// Both are sorted. A record under change meanwhile is compared after it.
func (l *Ledger) Relist(ctx context.Context) (appeared, vanished []fleet.InstanceID, err error) {
	l.vanished.Store(0)
	c, err := l.compare(ctx, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("relist ledger: %w", err)
	}
	slices.Sort(c.appeared)
	slices.Sort(c.vanished)
	return c.appeared, c.vanished, nil
}

// Fetch reads one record from the store itself, for when the ledger may lag: a
// standby's always does. It changes nothing in memory. It fails with
// ErrNotFound when there is none.
func (l *Ledger) Fetch(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error) {
	o, err := l.cfg.Store.Get(ctx, l.key(tenant, id))
	if err != nil {
		return fleet.Instance{}, fmt.Errorf("fetch instance %s: %w", id, err)
	}
	e, err := l.read(o.Body, tenant, id)
	if err != nil {
		return fleet.Instance{}, fmt.Errorf("fetch instance %s: %w", id, err)
	}
	return e.instance, nil
}

// Find is Recall of a caller that needs the record. Not ok means that the store has none;
// a record that is there and can't be read is an error.
func (l *Ledger) Find(ctx context.Context, tenant string, id fleet.InstanceID) (i fleet.Instance, ok bool, err error) {
	if i, ok = l.Get(id); ok {
		return i, true, nil
	}
	if ok, err = l.Recall(ctx, tenant, id); err != nil {
		return fleet.Instance{}, false, err
	}
	if m, malformed := l.malformedAt(l.key(tenant, id)); !ok && malformed {
		return fleet.Instance{}, false, fmt.Errorf("the record of instance %s can't be read: %w", id, m.Err)
	}
	i, ok = l.Get(id)
	return i, ok, nil
}

// Recall reads a record that memory lacks by its key, since a listing may have lacked it,
// and keeps it. It reports whether memory has it then; one that can't be
// understood is known as malformed afterwards.
func (l *Ledger) Recall(ctx context.Context, tenant string, id fleet.InstanceID) (found bool, err error) {
	unlock, err := l.locks.lock(ctx, id)
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, known := l.entry(id); known {
		return true, nil
	}
	gone, err := l.reload(ctx, tenant, id)
	if err != nil {
		return false, err
	}
	if gone {
		l.clearMalformed(l.key(tenant, id))
		return false, nil
	}
	_, found = l.entry(id)
	return found, nil
}

// reload makes memory what the store holds of one record, whose lock the caller
// holds.
func (l *Ledger) reload(ctx context.Context, tenant string, id fleet.InstanceID) (gone bool, err error) {
	key := l.key(tenant, id)
	o, err := l.cfg.Store.Get(ctx, key)
	if errors.Is(err, object.ErrNotFound) {
		l.drop(id)
		l.cache.deleteInstance(key)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	l.keep(tenant, id, o, true)
	return false, nil
}

// read is decode for what another process may have written. The rev is bounded here and
// not in decode, so that a record which can be read can always be written, too.
func (l *Ledger) read(body []byte, tenant string, id fleet.InstanceID) (entry, error) {
	e, err := decode(body, tenant, id)
	if err != nil {
		return entry{}, err
	}
	if err := record.CheckNumber("rev", e.instance.Rev); err != nil {
		return entry{}, err
	}
	return e, l.inReach(e.instance.Epoch)
}

// keep takes an object into memory, and into the cache if it came from the
// store. A record that was good before and can't be read any more stays as it
// was known: its instance lives, whatever happened to the object.
func (l *Ledger) keep(tenant string, id fleet.InstanceID, o object.Object, fresh bool) bool {
	e, err := l.read(o.Body, tenant, id)
	if err != nil {
		l.setMalformed(malformed{fleet.Malformed{Key: o.Key, Tenant: tenant, ID: id, Err: err}, o.ETag, readEpoch(o.Body)})
		return false
	}
	e.etag = o.ETag
	l.set(e)
	l.clearMalformed(o.Key)
	if fresh {
		l.cache.putInstance(o.Key, row{etag: o.ETag, body: o.Body})
	}
	return true
}

func (l *Ledger) setMalformed(m malformed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.malformed[m.Key] = m
}

func (l *Ledger) clearMalformed(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.malformed, key)
}

func (l *Ledger) knownMalformed(info object.Info) bool {
	m, ok := l.malformedAt(info.Key)
	return ok && m.etag == info.ETag
}

func (l *Ledger) malformedAt(key string) (malformed, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	m, ok := l.malformed[key]
	return m, ok
}
