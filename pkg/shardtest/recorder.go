package shardtest

import (
	"context"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// recorder is the innermost store: it passes everything that took effect to the book, in order.
type recorder struct {
	object.Store
	book *book
	mu   *sync.Mutex
}

type sentKey struct{}

// sentNow records in ctx when a life sent a request, which takes effect later.
func sentNow(ctx context.Context) context.Context {
	return context.WithValue(ctx, sentKey{}, time.Now())
}

// sentAt returns that time; for a request that no life sent, the present.
func sentAt(ctx context.Context) time.Time {
	if at, ok := ctx.Value(sentKey{}).(time.Time); ok {
		return at
	}
	return time.Now()
}

// Put implements object.Store.
func (r recorder) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tag, err := r.Store.Put(ctx, key, body, pre)
	if err == nil {
		r.book.wrote(key, body, sentAt(ctx))
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
