package election_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nstance/nstance/pkg/object"
)

// switchable is a store that one server can be cut off from.
type switchable struct {
	object.Store
	down atomic.Bool
	gets atomic.Int64
	puts atomic.Int64
}

func (s *switchable) Get(ctx context.Context, key string) (object.Object, error) {
	s.gets.Add(1)
	if s.down.Load() {
		<-ctx.Done()
		return object.Object{}, fmt.Errorf("get %s: %w: %w", key, object.ErrUnknown, ctx.Err())
	}
	return s.Store.Get(ctx, key)
}

func (s *switchable) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	s.puts.Add(1)
	if s.down.Load() {
		<-ctx.Done()
		return "", fmt.Errorf("put %s: %w: %w", key, object.ErrUnknown, ctx.Err())
	}
	return s.Store.Put(ctx, key, body, pre)
}
