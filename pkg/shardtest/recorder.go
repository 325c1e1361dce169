package shardtest

import (
	"context"
	"sync"

	"github.com/nstance/nstance/pkg/object"
)

// recorder is the innermost store: it tells the book of what took effect, in the
// order in which it did.
type recorder struct {
	object.Store
	book *book
	mu   *sync.Mutex
}

// Put implements object.Store.
func (r recorder) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tag, err := r.Store.Put(ctx, key, body, pre)
	if err == nil {
		r.book.wrote(key, body)
	}
	return tag, err
}

// Delete implements object.Store.
func (r recorder) Delete(ctx context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.Store.Delete(ctx, key)
	if err == nil {
		r.book.deleted(key)
	}
	return err
}
