package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/object"
)

// GroupsKey is where the shard's dynamic groups are in the store.
func (l *Ledger) GroupsKey() string { return groupsKey(l.cfg.Shard) }

// Groups reads the shard's dynamic groups from the store: the raw document and
// its etag, both empty when there is none yet.
func (l *Ledger) Groups(ctx context.Context) ([]byte, object.ETag, error) {
	o, err := l.cfg.Store.Get(ctx, groupsKey(l.cfg.Shard))
	if err != nil && !errors.Is(err, object.ErrNotFound) {
		return nil, "", fmt.Errorf("read dynamic groups: %w", err)
	}
	l.seenGroups(row{etag: o.ETag, body: o.Body})
	return o.Body, o.ETag, nil
}

func (l *Ledger) seenGroups(r row) {
	l.mu.Lock()
	l.dynamic = row{etag: r.etag, body: bytes.Clone(r.body)}
	l.mu.Unlock()
	l.cache.putGroups(groupsKey(l.cfg.Shard), r)
}

// GroupsKey is Ledger.GroupsKey.
func (w *Writer) GroupsKey() string { return w.ledger.GroupsKey() }

// Groups is Ledger.Groups.
func (w *Writer) Groups(ctx context.Context) ([]byte, object.ETag, error) {
	return w.ledger.Groups(ctx)
}

// PutGroups replaces the dynamic groups if their etag still is the given one
// (empty: if there are none yet), and returns the new etag. ErrConflict means
// that somebody else wrote: read again. The body must differ from every earlier
// one, which its {epoch, rev, writer} sees to.
func (w *Writer) PutGroups(ctx context.Context, body []byte, etag object.ETag) (object.ETag, error) {
	pre := object.IfMatch(etag)
	if etag == "" {
		pre = object.IfAbsent()
	}
	landed, err := w.put(ctx, groupsKey(w.ledger.cfg.Shard), body, pre)
	if landed != "" {
		w.ledger.seenGroups(row{etag: landed, body: body})
	}
	if err != nil {
		return "", fmt.Errorf("write dynamic groups: %w", err)
	}
	return landed, nil
}
