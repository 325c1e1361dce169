package objecttest

import (
	"context"
	"sync/atomic"

	"github.com/nstance/nstance/pkg/object"
)

// Counts is the number of requests by verb, including failed ones.
type Counts struct {
	Get, Put, Delete, List int64
}

// Total is the number of requests of all verbs.
func (c Counts) Total() int64 { return c.Get + c.Put + c.Delete + c.List }

// Sub returns the difference to an earlier reading.
func (c Counts) Sub(earlier Counts) Counts {
	return Counts{
		Get:    c.Get - earlier.Get,
		Put:    c.Put - earlier.Put,
		Delete: c.Delete - earlier.Delete,
		List:   c.List - earlier.List,
	}
}

// Counting is a store that counts the calls to another one. A page of a listing is one call;
// internal retries of the inner store are not counted.
type Counting struct {
	inner                   object.Store
	gets, puts, dels, lists atomic.Int64
}

var _ object.Store = (*Counting)(nil)

// NewCounting wraps s.
func NewCounting(s object.Store) *Counting { return &Counting{inner: s} }

// Counts returns the current numbers.
func (c *Counting) Counts() Counts {
	return Counts{Get: c.gets.Load(), Put: c.puts.Load(), Delete: c.dels.Load(), List: c.lists.Load()}
}

// Get implements object.Store.
func (c *Counting) Get(ctx context.Context, key string) (object.Object, error) {
	c.gets.Add(1)
	return c.inner.Get(ctx, key)
}

// Put implements object.Store.
func (c *Counting) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	c.puts.Add(1)
	return c.inner.Put(ctx, key, body, pre)
}

// Delete implements object.Store.
func (c *Counting) Delete(ctx context.Context, key string) error {
	c.dels.Add(1)
	return c.inner.Delete(ctx, key)
}

// List implements object.Store.
func (c *Counting) List(ctx context.Context, prefix, token string) (object.Page, error) {
	c.lists.Add(1)
	return c.inner.List(ctx, prefix, token)
}
