package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// GroupsObject is an object with dynamic groups as it was last seen. Without an etag
// there is none.
type GroupsObject struct {
	Body []byte // never changed in place
	ETag object.ETag
	// Prior is the last version known before this one, unless this process wrote this
	// one; nil if none is known. It is what this one, or its absence, is judged by.
	Prior []byte
}

// dynamic is one as it is remembered.
type dynamic struct {
	GroupsObject
	epoch uint64 // as far as it can be read
}

// dynamics are a shard's objects with dynamic groups. Safe for concurrent use.
type dynamics struct {
	cfg   Config
	cache *cache

	mu   sync.RWMutex
	seen map[string]dynamic // by key
}

func newDynamics(cfg Config, c *cache) *dynamics {
	d := &dynamics{cfg: cfg, cache: c, seen: map[string]dynamic{}}
	for key, r := range c.groups() {
		if key == d.GroupsKey() || strings.HasPrefix(key, tenantsPrefix(cfg.Shard)) {
			d.seen[key] = dynamic{GroupsObject{Body: r.body, ETag: r.etag}, readEpoch(r.body)}
		}
	}
	for key, r := range c.groups() {
		if of, ok := strings.CutPrefix(key, priorPrefix); ok && strings.HasPrefix(of, tenantsPrefix(cfg.Shard)) {
			known := d.seen[of]
			known.Prior = r.body
			d.seen[of] = known
		}
	}
	return d
}

// priorPrefix is where the cache keeps the version before, beside an object's key.
const priorPrefix = "prior/"

// GroupsKey is where the groups of all tenants were before each had an object of its
// own, and where it says since that they have moved.
func (d *dynamics) GroupsKey() string { return groupsKey(d.cfg.Shard) }

// TenantKey is where a tenant's dynamic groups are in the store.
func (d *dynamics) TenantKey(tenant string) string {
	return tenantsPrefix(d.cfg.Shard) + tenant + groupsSuffix
}

// Groups reads one object with dynamic groups from the store.
func (d *dynamics) Groups(ctx context.Context, key string) (GroupsObject, error) {
	o, err := d.cfg.Store.Get(ctx, key)
	if err != nil && !errors.Is(err, object.ErrNotFound) {
		return GroupsObject{}, fmt.Errorf("read dynamic groups: %w", err)
	}
	return d.found(key, o), nil
}

// Tenants returns the objects of the tenants that have one, and of those given and those
// that were known to have one: a listing may lack an object, so each of them is read by
// its key, and has no etag only if that says so. Objects that are listed with the etag
// of the version seen last are not read again.
func (d *dynamics) Tenants(ctx context.Context, also ...string) (map[string]GroupsObject, error) {
	etags, err := d.listed(ctx, also)
	if err != nil {
		return nil, err
	}
	return d.readAll(ctx, etags)
}

// listed returns the etags of the tenants' objects as they are listed; empty: of one
// given, or known, that is not.
func (d *dynamics) listed(ctx context.Context, also []string) (map[string]object.ETag, error) {
	infos, err := object.All(ctx, d.cfg.Store, tenantsPrefix(d.cfg.Shard))
	if err != nil {
		return nil, fmt.Errorf("list dynamic groups: %w", err)
	}
	etags := map[string]object.ETag{}
	for _, tenant := range slices.Concat(also, d.tenants()) {
		etags[tenant] = ""
	}
	for _, info := range infos {
		tenant, err := d.parse(info.Key)
		if err != nil {
			d.cfg.Logger.Warn("an object is that of no tenant's groups", slog.String("key", info.Key), slog.Any("reason", err))
			continue
		}
		etags[tenant] = info.ETag
	}
	return etags, nil
}

// readAll reads the objects of tenants but for those with the etag of the version that
// was seen last.
func (d *dynamics) readAll(ctx context.Context, etags map[string]object.ETag) (map[string]GroupsObject, error) {
	var mu sync.Mutex
	found := make(map[string]GroupsObject, len(etags))
	reads, within := errgroup.WithContext(ctx)
	reads.SetLimit(d.cfg.Concurrency)
	for tenant, etag := range etags {
		reads.Go(func() (err error) {
			key := d.TenantKey(tenant)
			o, known := d.known(key)
			if !known || etag == "" || o.ETag != etag {
				if o, err = d.Groups(within, key); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			found[tenant] = o
			return nil
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	return found, nil
}

// tenants are those of which an object is known, or was known before.
func (d *dynamics) tenants() (names []string) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for key := range d.seen {
		if tenant, err := d.parse(key); err == nil {
			names = append(names, tenant)
		}
	}
	return names
}

func (d *dynamics) parse(key string) (tenant string, err error) {
	name, below := strings.CutPrefix(key, tenantsPrefix(d.cfg.Shard))
	name, ok := strings.CutSuffix(name, groupsSuffix)
	if !below || !ok {
		return "", fmt.Errorf("object name %.200q: want {tenant}%s", name, groupsSuffix)
	}
	return name, fleet.CheckName(name)
}

func (d *dynamics) known(key string) (GroupsObject, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	o, ok := d.seen[key]
	return o.GroupsObject, ok
}

// found notes what a read of an object returned. An object that is gone stays known by
// its last version.
func (d *dynamics) found(key string, o object.Object) GroupsObject {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.seen[key]
	if was.ETag == o.ETag {
		return was.GroupsObject
	}
	now := dynamic{GroupsObject{o.Body, o.ETag, was.Prior}, readEpoch(o.Body)}
	if was.ETag != "" && key != d.GroupsKey() {
		now.Prior = was.Body
	}
	d.set(key, now)
	return now.GroupsObject
}

// wrote notes what this process wrote.
func (d *dynamics) wrote(key string, o dynamic) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(key, o)
}

// set remembers an object, also in the cache. The lock is held.
func (d *dynamics) set(key string, o dynamic) {
	if o.ETag == "" && o.Prior == nil {
		delete(d.seen, key)
	} else {
		d.seen[key] = o
	}
	d.cache.putGroups(key, row{etag: o.ETag, body: o.Body})
	prior := row{}
	if o.Prior != nil {
		prior = row{etag: priorPrefix, body: o.Prior} // a row needs an etag, and this one has none
	}
	d.cache.putGroups(priorPrefix+key, prior)
}

// epochs are those of all objects, as far as they can be read.
func (d *dynamics) epochs() (all []uint64) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, o := range d.seen {
		all = append(all, o.epoch)
	}
	return all
}

// load reads all objects with dynamic groups, each by its key: the listing may be of an
// earlier time, just like the version that is known, and sizes are not to be taken from
// there.
func (d *dynamics) load(ctx context.Context) error {
	if _, err := d.Groups(ctx, d.GroupsKey()); err != nil {
		return err
	}
	etags, err := d.listed(ctx, nil)
	if err != nil {
		return err
	}
	for tenant := range etags {
		etags[tenant] = ""
	}
	_, err = d.readAll(ctx, etags)
	return err
}

// GroupsKey is Ledger.GroupsKey.
func (w *Writer) GroupsKey() string { return w.ledger.GroupsKey() }

// TenantKey is Ledger.TenantKey.
func (w *Writer) TenantKey(tenant string) string { return w.ledger.TenantKey(tenant) }

// Groups is Ledger.Groups.
func (w *Writer) Groups(ctx context.Context, key string) (GroupsObject, error) {
	return w.ledger.Groups(ctx, key)
}

// Tenants is Ledger.Tenants.
func (w *Writer) Tenants(ctx context.Context, also ...string) (map[string]GroupsObject, error) {
	return w.ledger.Tenants(ctx, also...)
}

// PutGroups replaces an object with dynamic groups if its etag still is the given one
// (empty: if there is none yet), and returns the new etag. ErrConflict means
// that somebody else wrote: read again. The body must differ from every earlier
// one, which its {epoch, rev, writer} sees to, and is the ledger's from here on.
func (w *Writer) PutGroups(ctx context.Context, key string, body []byte, etag object.ETag) (object.ETag, error) {
	pre := object.IfMatch(etag)
	if etag == "" {
		pre = object.IfAbsent()
	}
	landed, err := w.put(ctx, key, body, pre)
	if landed != "" {
		w.ledger.wrote(key, dynamic{GroupsObject{Body: body, ETag: landed}, w.fence.Epoch()})
	}
	if err != nil {
		return "", fmt.Errorf("write dynamic groups: %w", err)
	}
	return landed, nil
}
