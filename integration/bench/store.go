package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// put is a successful write or delete.
type put struct {
	Key    string
	Absent bool // it created the object
	At     time.Time
	Took   time.Duration
}

// watchedStore reports every successful write.
type watchedStore struct {
	object.Store
	wrote func(put)
}

// Put implements object.Store.
func (s watchedStore) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	began := time.Now()
	etag, err := s.Store.Put(ctx, key, body, pre)
	if err == nil {
		s.wrote(put{Key: key, Absent: pre.Absent(), At: time.Now(), Took: time.Since(began)})
	}
	return etag, err
}

// Delete implements object.Store.
func (s watchedStore) Delete(ctx context.Context, key string) error {
	err := s.Store.Delete(ctx, key)
	if err == nil {
		s.wrote(put{Key: key, At: time.Now()})
	}
	return err
}

// slowedStore makes each request take longer.
type slowedStore struct {
	object.Store
	takes time.Duration
}

// Get implements object.Store.
func (s slowedStore) Get(ctx context.Context, key string) (object.Object, error) {
	time.Sleep(s.takes)
	return s.Store.Get(ctx, key)
}

// Put implements object.Store.
func (s slowedStore) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	time.Sleep(s.takes)
	return s.Store.Put(ctx, key, body, pre)
}

// List implements object.Store.
func (s slowedStore) List(ctx context.Context, prefix, token string) (object.Page, error) {
	time.Sleep(s.takes)
	return s.Store.List(ctx, prefix, token)
}

// creations remembers how long the write of each new record took.
type creations struct {
	mu   sync.Mutex
	took map[string]time.Duration
}

func newCreations() *creations { return &creations{took: map[string]time.Duration{}} }

func (c *creations) wrote(p put) {
	if !p.Absent || !strings.HasPrefix(p.Key, "instance/") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took[p.Key] = p.Took
}

func (c *creations) of(key string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.took[key]
}
