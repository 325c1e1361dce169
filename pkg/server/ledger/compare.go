package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// comparison is what one pass over the listing found.
type comparison struct {
	ledger *Ledger

	mu                 sync.Mutex
	listed             map[string]bool
	read               int
	appeared, vanished []fleet.InstanceID
}

func (c *comparison) count(read bool, appeared fleet.InstanceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if read {
		c.read++
	}
	if appeared != "" {
		c.appeared = append(c.appeared, appeared)
	}
}

func (l *Ledger) compare(ctx context.Context, known map[string]row) (*comparison, error) {
	infos, err := object.All(ctx, l.cfg.Store, prefix(l.cfg.Shard))
	if err != nil {
		return nil, err
	}
	c := &comparison{ledger: l, listed: make(map[string]bool, len(infos))}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(l.cfg.Concurrency)
	for _, info := range infos {
		c.listed[info.Key] = true
		work.Go(func() error { return c.adopt(ctx, info, known[info.Key]) })
	}
	for _, i := range l.Instances() {
		if !c.listed[l.key(i.Tenant, i.ID)] {
			work.Go(func() error { return c.miss(ctx, i.Tenant, i.ID) })
		}
	}
	for key := range known {
		if !c.listed[key] {
			work.Go(func() error { return c.recallCached(ctx, key) })
		}
	}
	for _, m := range l.Malformed() {
		if !c.listed[m.Key] {
			work.Go(func() error { return c.missMalformed(ctx, m.Key) })
		}
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return c, nil
}

// recallCached reads a record that the cache holds and the listing lacks.
func (c *comparison) recallCached(ctx context.Context, key string) error {
	tenant, id, err := c.ledger.parseKey(key)
	if err != nil {
		c.ledger.cache.deleteInstance(key)
		return nil //nolint:nilerr // a row of another name is none of ours
	}
	_, err = c.ledger.Recall(ctx, tenant, id)
	return err
}

// missMalformed looks for an object that could not be understood and that the listing
// did not have: as long as it is there it speaks for a VM.
func (c *comparison) missMalformed(ctx context.Context, key string) error {
	o, err := c.ledger.cfg.Store.Get(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		c.ledger.clearMalformed(key)
		return nil
	case err != nil:
		return err
	}
	tenant, id, err := c.ledger.parseKey(key)
	if err != nil {
		return nil // it is as malformed as before
	}
	unlock, err := c.ledger.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if old, known := c.ledger.entry(id); !known || old.instance.Tenant == tenant && old.etag != o.ETag {
		c.ledger.keep(tenant, id, o, true)
	}
	return nil
}

// adopt takes over one listed object unless it is known as it is.
func (c *comparison) adopt(ctx context.Context, info object.Info, cached row) error {
	tenant, id, err := c.ledger.parseKey(info.Key)
	if err != nil {
		c.ledger.setMalformed(malformed{Malformed: fleet.Malformed{Key: info.Key, Err: err}, etag: info.ETag})
		return nil
	}
	unlock, err := c.ledger.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	old, known := c.ledger.entry(id)
	if known && old.instance.Tenant != tenant {
		err := fmt.Errorf("id: %s is an instance of tenant %s already", id, old.instance.Tenant)
		c.ledger.setMalformed(malformed{Malformed: fleet.Malformed{Key: info.Key, Tenant: tenant, ID: id, Err: err}, etag: info.ETag})
		return nil
	}
	if known && old.etag == info.ETag || c.ledger.knownMalformed(info) {
		return nil
	}
	found := object.Object{Info: object.Info{Key: info.Key, ETag: cached.etag}, Body: cached.body}
	read := known || cached.etag != info.ETag // the cache is older than memory
	if read {
		found, err = c.ledger.cfg.Store.Get(ctx, info.Key)
		if errors.Is(err, object.ErrNotFound) {
			return nil // removed since it was listed
		}
		if err != nil {
			return err
		}
	}
	if !c.ledger.keep(tenant, id, found, read) || known {
		id = ""
	}
	c.count(read, id)
	return nil
}

// miss looks for a record that the listing did not have: it may have been
// created or removed since.
func (c *comparison) miss(ctx context.Context, tenant string, id fleet.InstanceID) error {
	unlock, err := c.ledger.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	old, known := c.ledger.entry(id)
	if !known {
		return nil
	}
	gone, err := c.ledger.reload(ctx, tenant, id)
	if err == nil && gone {
		if old.instance.Phase != fleet.Deleted {
			c.ledger.vanished.Add(1)
		}
		c.mu.Lock()
		c.vanished = append(c.vanished, id)
		c.mu.Unlock()
	}
	return err
}
