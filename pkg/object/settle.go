package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// settleBackoff is the pauses between the attempts of one Settle. They are short,
// because a leader whose renewal is in doubt does nothing else.
func settleBackoff() retry.Backoff {
	return retry.Backoff{First: 50 * time.Millisecond, Limit: 2 * time.Second}
}

// Settle is a conditional Put that survives lost replies. After an unknown
// outcome it reads the object back and compares:
//
//   - body is there: the write landed; its etag is returned.
//   - the object is still what pre asks for: the write has not landed (yet), and
//     is sent again. Should the first one land after all, one of the two meets a
//     changed object and is refused by the store.
//   - anything else is there: ErrConflict. Someone else wrote; this write may
//     have been there in between.
//
// It goes on until ctx ends, then returns ErrUnknown beside the context's error:
// the write may be there, and may still land. Callers give a ctx with an end. A
// refusal ends it at once (ErrRefused, ErrUnfit), with ErrUnknown beside it unless
// no attempt can have landed.
//
// body must be unique to this write, which records achieve with {epoch, rev,
// writer}; else another's equal write would be taken for this one. pre must be
// IfAbsent or IfMatch: an unconditional write that lands late would undo a later one.
func Settle(ctx context.Context, s Store, key string, body []byte, pre Precondition) (ETag, error) {
	if !pre.Conditional() {
		return "", fmt.Errorf("settle %s: no precondition, must be IfAbsent or IfMatch", key)
	}
	etag, err := s.Put(ctx, key, body, pre)
	if !errors.Is(err, ErrUnknown) || final(err) {
		return etag, err // a first conflict is what it says: nothing of ours was under way
	}
	for attempt := 1; ; attempt++ {
		var found outcome
		var seen error
		etag, found, seen = readBack(ctx, s, key, body, pre)
		switch found {
		case landed:
			return etag, nil
		case changed:
			return "", fmt.Errorf("settle %s: %w", key, ErrConflict)
		case unchanged:
			etag, err = s.Put(ctx, key, body, pre)
			// A conflict here may be with our own earlier attempt: read back again.
			if err == nil {
				return etag, nil
			}
		case unread:
			err = seen
		}
		if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrConflict) || final(err) {
			// An earlier attempt may still land, whatever became of this one.
			return "", fmt.Errorf("settle %s: %w: an attempt before may have landed: %w", key, ErrUnknown, err)
		}
		if end := retry.Wait(ctx, settleBackoff().Delay(attempt)); end != nil {
			return "", fmt.Errorf("settle %s: %w: %w; last answer: %w", key, ErrUnknown, end, err)
		}
	}
}

// outcome is what a read tells of a write whose reply was lost.
type outcome int

const (
	unread    outcome = iota // the store could not be asked
	landed                   // the body is there
	unchanged                // what the precondition asks for is there
	changed                  // something else is there
)

func readBack(ctx context.Context, s Store, key string, body []byte, pre Precondition) (ETag, outcome, error) {
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
