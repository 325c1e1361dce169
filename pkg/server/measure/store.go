package measure

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// Store returns a store whose calls are measured.
func (c *Calls) Store(s object.Store) object.Store { return store{s, c} }

type store struct {
	inner object.Store
	calls *Calls
}

var _ object.Store = store{}

// Get implements object.Store.
func (s store) Get(ctx context.Context, key string) (object.Object, error) {
	began := time.Now()
	o, err := s.inner.Get(ctx, key)
	s.calls.stored(ctx, object.VerbGet, key, began, err)
	return o, err
}

// Put implements object.Store.
func (s store) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	began := time.Now()
	etag, err := s.inner.Put(ctx, key, body, pre)
	s.calls.stored(ctx, object.VerbPut, key, began, err)
	return etag, err
}

// Delete implements object.Store.
func (s store) Delete(ctx context.Context, key string) error {
	began := time.Now()
	err := s.inner.Delete(ctx, key)
	s.calls.stored(ctx, object.VerbDelete, key, began, err)
	return err
}

// List implements object.Store.
func (s store) List(ctx context.Context, prefix, token string) (object.Page, error) {
	began := time.Now()
	p, err := s.inner.List(ctx, prefix, token)
	s.calls.stored(ctx, object.VerbList, prefix, began, err)
	return p, err
}

// areas are the first parts of the keys of a cluster's objects.
func areas() []string {
	return []string{"applied", "certlog", "cluster", "config", "files", "groups", "instance", "leader", "probe", "request"}
}

// areaOf returns the area of a key; "other" for one that is none of a cluster's.
func areaOf(key string) string {
	area, _, _ := strings.Cut(key, "/")
	if slices.Contains(areas(), area) {
		return area
	}
	return "other"
}
