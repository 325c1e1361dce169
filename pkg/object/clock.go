package object

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoTimes means that a store does not say when its objects were written.
var ErrNoTimes = errors.New("the store gives objects no times")

// ClockAhead returns how far the clock of a store is ahead of this host's, negative if it is behind,
// by the time that it gives an object below probe/, which is deleted again. id must be unique to the
// call. Stores may give whole seconds, and the request takes time: a difference that these explain
// is zero. The error is ErrNoTimes if there is no such time.
func ClockAhead(ctx context.Context, s Store, id string, now func() time.Time) (ahead time.Duration, err error) {
	key := "probe/" + id
	before := now()
	_, err = s.Put(ctx, key, []byte("clock"), IfAbsent())
	after := now()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
		defer cancel()
		_ = s.Delete(ctx, key) // what is left below probe/ affects nothing
	}()
	if err != nil {
		return 0, fmt.Errorf("compare the clocks: %w", err)
	}
	o, err := s.Get(ctx, key)
	switch { // without monotonic readings, which say nothing of the clock
	case err != nil:
		return 0, fmt.Errorf("compare the clocks: %w", err)
	case o.ModTime.IsZero():
		return 0, fmt.Errorf("compare the clocks: %w", ErrNoTimes)
	case o.ModTime.Before(before.Round(0).Add(-time.Second)):
		ahead = o.ModTime.Sub(before.Round(0))
	case o.ModTime.After(after.Round(0).Add(time.Second)):
		ahead = o.ModTime.Sub(after.Round(0))
	}
	return ahead.Round(time.Second), nil
}
