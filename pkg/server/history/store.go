package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	// Settle is how long the first new event waits for others before they are written.
	Settle = 5 * time.Second
	// Interval is the shortest time between two writes.
	Interval = time.Minute
	// LastWrite bounds the write after the end of a term.
	LastWrite = time.Second
)

// stored is what is known of the object.
type stored struct {
	known   bool        // etag is that of the current version, as far as this term knows
	etag    object.ETag // empty: there is no object
	rev     uint64
	deposed bool   // a later leader has written
	upTo    uint64 // the last event of this term that is stored
	failing bool   // the last write failed, which is logged once
}

// header identifies a version of the object.
type header struct {
	Epoch  uint64 `json:"epoch"`
	Rev    uint64 `json:"rev"`
	Writer string `json:"writer"`
}

// file is the object.
type file struct {
	header
	Events []fleet.Event `json:"events"`
}

// errDeposed means that a later leader has written the object: this one writes no more.
var errDeposed = errors.New("a later leader has written the events")

// Run reads the events of earlier terms, and writes new ones until ctx ends.
func (h *History) Run(ctx context.Context) {
	if !h.readFirst(ctx) {
		return
	}
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.fresh:
		}
		if retry.Wait(ctx, max(Settle, Interval-h.cfg.Now().Sub(last))) == nil {
			last = h.cfg.Now()
			h.write(ctx)
		}
	}
}

// readFirst reads the object, with retries. It returns false if ctx ended first.
func (h *History) readFirst(ctx context.Context) bool {
	back := retry.Backoff{First: time.Second, Limit: Interval}
	for failures := 1; ; failures++ {
		err := h.read(ctx)
		if failures == 1 {
			close(h.settled)
		}
		if err == nil || errors.Is(err, errDeposed) {
			return ctx.Err() == nil
		}
		if failures == 1 && ctx.Err() == nil {
			h.cfg.Logger.Warn("can't read the events of earlier terms yet", slog.Any("error", err))
		}
		if retry.Wait(ctx, back.Delay(failures)) != nil {
			return false
		}
	}
}

// read reads the object and adds its events. A damaged object counts as empty, and is overwritten.
func (h *History) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout())
	defer cancel()
	o, err := h.cfg.Store.Get(ctx, h.cfg.Key)
	if err != nil && !errors.Is(err, object.ErrNotFound) {
		return fmt.Errorf("read %s: %w", h.cfg.Key, err)
	}
	h.stored.known, h.stored.etag = true, o.ETag
	var f file
	if err == nil {
		if f, err = decode(o.Body, h.cfg.Readable); err != nil {
			h.cfg.Logger.Warn("events of earlier terms are lost", slog.String("key", h.cfg.Key), slog.Any("error", err))
			f = file{}
		}
	}
	h.stored.rev = max(h.stored.rev, f.Rev)
	h.merge(f.Events)
	if f.Epoch > h.cfg.Epoch {
		h.stored.deposed = true
		return errDeposed
	}
	return nil
}

// decode parses the object. Events without an ID or kind are left out.
func decode(body []byte, readable func(epoch uint64) error) (f file, err error) {
	if err := json.Unmarshal(body, &f); err != nil {
		return file{}, fmt.Errorf("not the events of a shard: %w", err)
	}
	if err := readable(f.Epoch); err != nil {
		return file{}, err
	}
	events := f.Events[:0]
	for _, e := range f.Events {
		if e.ID.Number > 0 && e.Kind != "" {
			events = append(events, e)
		}
	}
	f.Events = events
	return f, nil
}

// write writes the events if there are new ones. What can't be written now is written with the next
// ones, a minute later at the earliest.
func (h *History) write(ctx context.Context) {
	err := h.put(ctx, h.cfg.Permit)
	if errors.Is(err, object.ErrConflict) { // another leader has written: earlier or later?
		err = h.put(ctx, h.cfg.Permit)
	}
	switch {
	case err == nil:
		h.stored.failing = false
	case errors.Is(err, errDeposed), ctx.Err() != nil:
	default:
		if !h.stored.failing {
			h.stored.failing = true
			h.cfg.Logger.Warn("can't store events yet", slog.String("key", h.cfg.Key), slog.Any("error", err))
		}
		select {
		case h.fresh <- struct{}{}:
		default: // already signalled
		}
	}
}

// put makes one attempt. After an error it is not known what the object is, and the next attempt
// reads it first.
func (h *History) put(ctx context.Context, permit func(context.Context) error) error {
	if h.stored.deposed {
		return errDeposed
	}
	if !h.stored.known {
		if err := h.read(ctx); err != nil {
			return err
		}
	}
	body, upTo := h.encode()
	if upTo == h.stored.upTo {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout())
	defer cancel()
	over := object.IfAbsent()
	if h.stored.etag != "" {
		over = object.IfMatch(h.stored.etag)
	}
	if err := permit(ctx); err != nil {
		return fmt.Errorf("write %s: %w", h.cfg.Key, err)
	}
	h.stored.rev++
	etag, err := h.cfg.Store.Put(ctx, h.cfg.Key, body, over)
	if err != nil {
		h.stored.known = false
		return fmt.Errorf("write %s: %w", h.cfg.Key, err)
	}
	h.stored.etag, h.stored.upTo = etag, upTo
	return nil
}

// encode returns the next version of the object, and the number of its last event.
func (h *History) encode() (body []byte, upTo uint64) {
	h.mu.Lock()
	entries, size := slices.Clone(h.ring.entries), h.ring.bytes
	upTo = h.number
	h.mu.Unlock()
	// Plain data always encodes. One event at a time: the whole would be garbage of several times its size.
	head, _ := json.Marshal(header{Epoch: h.cfg.Epoch, Rev: h.stored.rev + 1, Writer: h.cfg.Writer})
	body = append(make([]byte, 0, len(head)+size+len(`,"events":[]}`)), bytes.TrimSuffix(head, []byte("}"))...)
	body = append(body, `,"events":[`...)
	for n, e := range entries {
		if n > 0 {
			body = append(body, ',')
		}
		one, _ := json.Marshal(e.Event)
		body = append(body, one...)
	}
	return append(body, "]}"...), upTo
}

// Flush writes the last events of a term that gave up the lead, when Run has returned, for a short
// time. The next leader does not wait for it: what it finds only later, it adds then.
func (h *History) Flush(ctx context.Context) {
	if !h.stored.known {
		return // it is not worth a read
	}
	ctx, cancel := context.WithTimeout(ctx, LastWrite)
	defer cancel()
	given := func(context.Context) error { return nil } // its write is conditional on the version before
	_ = h.put(ctx, given)                               // the next leader does without them
}
