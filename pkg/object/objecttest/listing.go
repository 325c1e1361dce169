package objecttest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// Listing is a Store whose listings omit keys or are stale, while everything else is passed
// through. Only changes made through it can be delayed. Safe for concurrent use.
type Listing struct {
	inner object.Store

	mu      sync.Mutex
	hides   func(key string) bool
	lag     time.Duration
	late    []string // prefixes of the stale listings; empty: all
	changes []listingChange
}

// listingChange is a write, and what listings showed before it.
type listingChange struct {
	at     time.Time
	key    string
	before *object.Info // nil: nothing
}

var _ object.Store = (*Listing)(nil)

// maxListingChanges bounds the memory of a Listing.
const maxListingChanges = 1 << 16

// NewListing wraps s. Its listings are correct until Hide or Lag is called.
func NewListing(s object.Store) *Listing { return &Listing{inner: s} }

// Hide makes listings omit the keys for which hides returns true; nil: none. hides is never
// called concurrently.
func (l *Listing) Hide(hides func(key string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hides = hides
}

// Lag delays listings by lag: those of a prefix that begins with one of prefixes, or all if
// none is given.
func (l *Listing) Lag(lag time.Duration, prefixes ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag, l.late = lag, prefixes
}

// lags reports whether listings of a prefix are stale. The caller holds mu.
func (l *Listing) lags(prefix string) bool {
	begins := func(late string) bool { return strings.HasPrefix(prefix, late) }
	return l.lag > 0 && (len(l.late) == 0 || slices.ContainsFunc(l.late, begins))
}

// Get implements object.Store.
func (l *Listing) Get(ctx context.Context, key string) (object.Object, error) {
	return l.inner.Get(ctx, key)
}

// List implements object.Store.
func (l *Listing) List(ctx context.Context, prefix, token string) (object.Page, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lags(prefix) {
		page, err := l.inner.List(ctx, prefix, token)
		page.Objects = l.shown(page.Objects)
		return page, err
	}
	infos, err := l.before(ctx, prefix, time.Now().Add(-l.lag))
	return object.Page{Objects: l.shown(infos)}, err
}

func (l *Listing) shown(infos []object.Info) []object.Info {
	if l.hides == nil {
		return infos
	}
	return slices.DeleteFunc(infos, func(i object.Info) bool { return l.hides(i.Key) })
}

// before returns a past listing: the current one without the changes since. The caller holds mu.
func (l *Listing) before(ctx context.Context, prefix string, at time.Time) ([]object.Info, error) {
	now, err := object.All(ctx, l.inner, prefix)
	if err != nil {
		return nil, err
	}
	was := map[string]object.Info{}
	for _, i := range now {
		was[i.Key] = i
	}
	for _, c := range slices.Backward(l.changes) {
		if !c.at.After(at) {
			break
		}
		if !strings.HasPrefix(c.key, prefix) {
			continue
		}
		if delete(was, c.key); c.before != nil {
			was[c.key] = *c.before
		}
	}
	infos := make([]object.Info, 0, len(was))
	for _, i := range was {
		infos = append(infos, i)
	}
	slices.SortFunc(infos, func(a, b object.Info) int { return cmp.Compare(a.Key, b.Key) })
	return infos, nil
}

// Put implements object.Store.
func (l *Listing) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	l.note(ctx, key)
	return l.inner.Put(ctx, key, body, pre)
}

// Delete implements object.Store.
func (l *Listing) Delete(ctx context.Context, key string) error {
	l.note(ctx, key)
	return l.inner.Delete(ctx, key)
}

// note records what listings show of a key before it changes.
func (l *Listing) note(ctx context.Context, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := listingChange{at: time.Now(), key: key}
	if o, err := l.inner.Get(ctx, key); err == nil {
		info := o.Info
		c.before = &info
	}
	if l.changes = append(l.changes, c); len(l.changes) > maxListingChanges {
		l.changes = slices.Delete(l.changes, 0, len(l.changes)/2)
	}
}
