package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
			d.seen[key] = dynamic{GroupsObject{r.body, r.etag}, readEpoch(r.body)}
		}
	}
	return d
}

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
	found := GroupsObject{o.Body, o.ETag}
	d.saw(key, dynamic{found, readEpoch(o.Body)})
	return found, nil
}

// Tenants reads the objects of all tenants that have one. Those whose etag is that of
// the version seen last are not read again.
func (d *dynamics) Tenants(ctx context.Context) (map[string]GroupsObject, error) {
	infos, err := object.All(ctx, d.cfg.Store, tenantsPrefix(d.cfg.Shard))
	if err != nil {
		return nil, fmt.Errorf("list dynamic groups: %w", err)
	}
	var mu sync.Mutex
	found, listed := map[string]GroupsObject{}, map[string]bool{}
	reads, within := errgroup.WithContext(ctx)
	reads.SetLimit(d.cfg.Concurrency)
	for _, info := range infos {
		tenant, err := d.parse(info.Key)
		if err != nil {
			d.cfg.Logger.Warn("an object is that of no tenant's groups", slog.String("key", info.Key), slog.Any("reason", err))
			continue
		}
		listed[info.Key] = true
		reads.Go(func() error {
			o, known := d.known(info.Key)
			if !known || o.ETag != info.ETag {
				var err error
				if o, err = d.Groups(within, info.Key); err != nil || o.ETag == "" {
					return err // removed since it was listed
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
	d.forget(listed)
	return found, nil
}

func (d *dynamics) parse(key string) (tenant string, err error) {
	name, ok := strings.CutSuffix(strings.TrimPrefix(key, tenantsPrefix(d.cfg.Shard)), groupsSuffix)
	if !ok {
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

func (d *dynamics) saw(key string, o dynamic) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.ETag == "" {
		delete(d.seen, key)
	} else {
		d.seen[key] = o
	}
	d.cache.putGroups(key, row{etag: o.ETag, body: o.Body})
}

// forget drops the tenants' objects that are no longer listed.
func (d *dynamics) forget(listed map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.seen {
		if key != d.GroupsKey() && !listed[key] {
			delete(d.seen, key)
			d.cache.putGroups(key, row{})
		}
	}
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

// load reads all objects with dynamic groups.
func (d *dynamics) load(ctx context.Context) error {
	if _, err := d.Groups(ctx, d.GroupsKey()); err != nil {
		return err
	}
	_, err := d.Tenants(ctx)
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
func (w *Writer) Tenants(ctx context.Context) (map[string]GroupsObject, error) {
	return w.ledger.Tenants(ctx)
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
		w.ledger.saw(key, dynamic{GroupsObject{body, landed}, w.fence.Epoch()})
	}
	if err != nil {
		return "", fmt.Errorf("write dynamic groups: %w", err)
	}
	return landed, nil
}
