package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// confirmBackoff is the back-off between the attempts of PutConfirmed. It is short, because a
// leader whose renewal is in doubt does nothing else.
func confirmBackoff() retry.Backoff {
	return retry.Backoff{First: 50 * time.Millisecond, Limit: 2 * time.Second}
}

// PutConfirmed is a conditional Put that survives lost replies. After an unknown outcome it
// reads the object back and compares:
//
//   - It is body: the write landed; its etag is returned.
//   - It still satisfies pre: the write has not landed yet, and is sent again. Should the first one
//     land after all, the store refuses one of the two.
//   - It is anything else: ErrConflict. Another writer wrote; this write may have been overwritten.
//
// It retries until ctx ends, then returns ErrUnknown with the context's error: the write may
// have landed, or may still land. ctx must have an end. A refusal (ErrRefused, ErrUnfit) ends
// it at once, with ErrUnknown unless no attempt can have landed.
//
// body must be unique to this write, which records achieve with {epoch, rev, writer}; otherwise
// another writer's equal write would be taken for this one. pre must be IfAbsent or IfMatch: an
// unconditional write that lands late would undo a later one.
func PutConfirmed(ctx context.Context, s Store, key string, body []byte, pre Precondition) (ETag, error) {
	if !pre.Conditional() {
		return "", fmt.Errorf("put %s: no precondition, want IfAbsent or IfMatch", key)
	}
	etag, err := s.Put(ctx, key, body, pre)
	if !errors.Is(err, ErrUnknown) || final(err) {
		return etag, err // a first conflict is definite: no earlier attempt was in flight
	}
	for attempt := 1; ; attempt++ {
		var found putResult
		var seen error
		etag, found, seen = readBack(ctx, s, key, body, pre)
		switch found {
		case landed:
			return etag, nil
		case changed:
			return "", fmt.Errorf("confirm put of %s: %w", key, ErrConflict)
		case unchanged:
			etag, err = s.Put(ctx, key, body, pre)
			// This may conflict with our own earlier attempt: read back again.
			if err == nil {
				return etag, nil
			}
		case unread:
			err = seen
		}
		if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrConflict) || final(err) {
			// An earlier attempt may still land, whatever the result of this one.
			return "", fmt.Errorf("confirm put of %s: an earlier attempt may have landed: %w", key, &outcomeUnknown{err})
		}
		if end := retry.Wait(ctx, confirmBackoff().Delay(attempt)); end != nil {
			return "", fmt.Errorf("confirm put of %s: %w: %w; last error: %w", key, ErrUnknown, end, err)
		}
	}
}

// outcomeUnknown is an error of a write whose outcome is unknown. Its text is that of the cause
// alone.
type outcomeUnknown struct{ cause error }

func (e *outcomeUnknown) Error() string   { return e.cause.Error() }
func (e *outcomeUnknown) Unwrap() []error { return []error{ErrUnknown, e.cause} }

// putResult is the result of reading back a write whose reply was lost.
type putResult int

const (
	unread    putResult = iota // the read failed
	landed                     // the object is the body
	unchanged                  // the object still satisfies the precondition
	changed                    // the object is something else
)

func readBack(ctx context.Context, s Store, key string, body []byte, pre Precondition) (ETag, putResult, error) {
	o, err := s.Get(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		o = Object{}
	case err != nil:
		return "", unread, err
	case bytes.Equal(o.Body, body):
		return o.ETag, landed, nil
	}
	if pre.Holds(o.ETag) {
		return "", unchanged, nil
	}
	return "", changed, nil
}
