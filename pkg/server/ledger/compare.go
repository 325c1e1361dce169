package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/object"
)

// comparison is one pass over the listing of a kind, and its results.
type comparison[K comparable, V any] struct {
	*objects[K, V]

	mu       sync.Mutex
	listed   map[string]bool
	read     int
	refusals []error // of listed objects that the store refuses to return
	appeared []K
	vanished []gone[K, V]
}

// gone is a record that is no longer in the store, as last known.
type gone[K comparable, V any] struct {
	key   K
	value V
}

func (c *comparison[K, V]) count(read bool, appeared ...K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if read {
		c.read++
	}
	c.appeared = append(c.appeared, appeared...)
}

func (c *comparison[K, V]) deny(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals = append(c.refusals, err)
}

// usable returns an error if the store refuses to return any of several listed objects: that is
// no damage to one of them.
func (c *comparison[K, V]) usable() error {
	if n := len(c.refusals); n > 1 && n == len(c.listed) {
		return fmt.Errorf("all %d objects below %s: %w", n, c.prefix(), c.refusals[0])
	}
	return nil
}

// compare syncs memory with the store. It reads only objects whose etag differs from the one
// in memory, or in a row of the cache. A record that either knows and the listing lacks is
// read by its key before it counts as gone. missed is called for each such record at once.
func (o *objects[K, V]) compare(ctx context.Context, known map[string]row, missed func(V)) (*comparison[K, V], error) {
	infos, err := object.All(ctx, o.cfg.Store, o.prefix())
	if err != nil {
		return nil, err
	}
	c := &comparison[K, V]{objects: o, listed: make(map[string]bool, len(infos))}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(o.cfg.Concurrency)
	for _, info := range infos {
		c.listed[info.Key] = true
		work.Go(func() error { return c.adopt(ctx, info, known[info.Key]) })
	}
	for _, k := range o.keys() {
		if !c.listed[o.key(k)] {
			work.Go(func() error { return c.miss(ctx, k, missed) })
		}
	}
	for key := range known {
		if !c.listed[key] {
			work.Go(func() error { return c.recallCached(ctx, key, known[key]) })
		}
	}
	for _, key := range o.malformedKeys() {
		if !c.listed[key] {
			work.Go(func() error { return c.missMalformed(ctx, key) })
		}
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return c, nil
}

// recallCached reads a record that is cached but not listed.
func (c *comparison[K, V]) recallCached(ctx context.Context, key string, cached row) error {
	k, err := c.parse(key)
	if err != nil {
		c.cache.delete(c.table(), key)
		return nil //nolint:nilerr // a row with a malformed key is not a record
	}
	c.remember(k, cached.body)
	_, err = c.recall(ctx, k)
	return err
}

// missMalformed reads a malformed object that was not listed: it stays malformed as long as it
// exists.
func (c *comparison[K, V]) missMalformed(ctx context.Context, key string) error {
	found, err := c.fetch(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		c.clearMalformed(key)
		return nil
	case errors.Is(err, object.ErrRefused):
		return nil // still can't be read
	case err != nil:
		return err
	}
	k, err := c.parse(key)
	if err != nil {
		return nil // still malformed
	}
	unlock, err := c.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	if !c.refused(k, found.Info) {
		c.store(k, found)
	}
	return nil
}

// refused marks an object as malformed if it can't coexist with the others.
func (c *comparison[K, V]) refused(k K, info object.Info) bool {
	c.objects.mu.RLock()
	err := c.admit(k)
	c.objects.mu.RUnlock()
	if err != nil {
		c.setMalformed(info.Key, malformed[K]{of: k, err: err, etag: info.ETag})
	}
	return err != nil
}

// adopt stores one listed object unless its version is known.
func (c *comparison[K, V]) adopt(ctx context.Context, info object.Info, cached row) error {
	k, err := c.parse(info.Key)
	if err != nil {
		c.setMalformed(info.Key, malformed[K]{err: err, etag: info.ETag})
		return nil
	}
	unlock, err := c.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	if c.refused(k, info) {
		return nil
	}
	old, known := c.entry(k)
	m, bad := c.malformedAt(info.Key)
	isRefused := errors.Is(m.err, object.ErrRefused) // access may return without a change of the object
	if bad && m.etag == info.ETag && !isRefused || !bad && known && old.etag == info.ETag {
		return nil // a malformed object may be restored to the known version
	}
	found, err := c.get(ctx, k, info, cached)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return nil // removed since it was listed
	case errors.Is(err, object.ErrRefused):
		c.deny(err)
		return c.denied(k, info, err)
	case err != nil:
		return err
	}
	if c.store(k, found) && !known {
		c.count(found.fresh, k)
	} else {
		c.count(found.fresh)
	}
	return nil
}

// get returns a listed object, from the cache if it has the listed version and memory has none.
func (c *comparison[K, V]) get(ctx context.Context, k K, info object.Info, cached row) (found fetched, err error) {
	_, known := c.entry(k) // memory is newer than the cache
	if !known && cached.etag == info.ETag {
		return fetched{Object: object.Object{Info: object.Info{Key: info.Key, ETag: cached.etag}, Body: cached.body}}, nil
	}
	if !known && cached.etag != "" {
		c.remember(k, cached.body)
	}
	return c.fetch(ctx, info.Key)
}

// miss reads a record that was not listed: it may have been created or removed since.
func (c *comparison[K, V]) miss(ctx context.Context, k K, missed func(V)) error {
	unlock, err := c.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	old, known := c.entry(k)
	if !known {
		return nil
	}
	isGone, err := c.reload(ctx, k)
	if err == nil && isGone {
		missed(old.value)
		c.mu.Lock()
		c.vanished = append(c.vanished, gone[K, V]{k, old.value})
		c.mu.Unlock()
	}
	return err
}
