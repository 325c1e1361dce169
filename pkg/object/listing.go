package object

import (
	"context"
	"fmt"
	"iter"
	"strings"
)

// The bounds of one listing. The largest tested shard has a hundred thousand instances; with a
// tombstone, a request and a certificate log entry each, fifty times as many keys mean that the
// store repeats itself. The bytes of keys and etags bound the memory of a listing.
const (
	MaxListedKeys  = 5_000_000
	MaxListedBytes = 1 << 30
)

// maxEmptyPages bounds consecutive empty pages with a next page. A store that skips deleted
// objects may return a few.
const maxEmptyPages = 100

// Lister is the part of a Store that lists.
type Lister interface {
	List(ctx context.Context, prefix, token string) (Page, error)
}

var _ Lister = Store(nil)

// Pages returns a listing page by page, and enforces the contract: every key has the prefix
// and is greater than the one before it, also across pages, and the listing ends within
// MaxListedKeys and MaxListedBytes. Otherwise it fails with ErrUnfit and ErrUnknown, and the
// pages so far prove nothing. An error is the last item yielded.
func Pages(ctx context.Context, s Lister, prefix string) iter.Seq2[[]Info, error] {
	return func(yield func([]Info, error) bool) {
		w := walk{prefix: prefix, keys: MaxListedKeys, bytes: MaxListedBytes}
		for token := ""; ; {
			page, err := s.List(ctx, prefix, token)
			if err == nil {
				err = w.accept(page)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(page.Objects, nil) || page.Next == "" {
				return
			}
			token = page.Next
		}
	}
}

// All collects every page of a listing.
func All(ctx context.Context, s Lister, prefix string) ([]Info, error) {
	var all []Info
	for page, err := range Pages(ctx, s, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	return all, nil
}

// walk is the state of a listing.
type walk struct {
	prefix      string
	last        string
	keys, bytes int // remaining
	empty       int // consecutive empty pages
}

// accept checks the next page.
func (w *walk) accept(page Page) error {
	for _, o := range page.Objects {
		switch {
		case !strings.HasPrefix(o.Key, w.prefix):
			return w.refuse("a listing has keys without its prefix", fmt.Sprintf("key %q", o.Key))
		case o.Key <= w.last:
			return w.refuse("the keys of a listing are not ascending", fmt.Sprintf("key %q came after %q", o.Key, w.last))
		}
		w.last = o.Key
		w.keys--
		w.bytes -= len(o.Key) + len(o.ETag)
		if w.keys < 0 || w.bytes < 0 {
			return w.refuse("a listing has no end",
				fmt.Sprintf("it was cut off after key %q, at %d keys or %d bytes", o.Key, MaxListedKeys, MaxListedBytes))
		}
	}
	if w.empty++; len(page.Objects) > 0 {
		w.empty = 0
	}
	if w.empty > maxEmptyPages && page.Next != "" {
		return w.refuse("a listing has no end", fmt.Sprintf("%d pages in a row after key %q are empty", w.empty, w.last))
	}
	return nil
}

func (w *walk) refuse(what, detail string) error {
	return fmt.Errorf("list %s: %w: %w", w.prefix, ErrUnknown, &Lack{Kind: ErrUnfit, What: what, Detail: detail})
}

type pageSize struct{}

// WithPageSize asks the backend for pages of at most n objects in listings under ctx,
// so that a few objects make several pages. Backends cap n at a page of their own.
func WithPageSize(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, pageSize{}, n)
}

// PageSize returns the size set by WithPageSize, at most most; without one it returns most.
func PageSize(ctx context.Context, most int) int {
	if n, ok := ctx.Value(pageSize{}).(int); ok && n > 0 {
		return min(n, most)
	}
	return most
}
