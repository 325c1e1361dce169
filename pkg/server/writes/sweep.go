package writes

import (
	"context"
	"errors"
	"iter"

	"github.com/nstance/nstance/pkg/object"
)

// maxFailures is after how many failures in a row a sweep ends: then the store is down.
const maxFailures = 5

// Swept is the result of a sweep.
type Swept struct {
	Deleted int
	Refused int   // items that the store did not let go, such as those that a policy protects
	Refusal error // the first refusal
}

// Add returns the sum of two sweeps.
func (s Swept) Add(more Swept) Swept {
	s.Deleted += more.Deleted
	s.Refused += more.Refused
	if s.Refusal == nil {
		s.Refusal = more.Refusal
	}
	return s
}

// Sweep deletes items of a listing, one after the other, to leave the store to more important work.
// remove reports whether it deleted its item. An item that can't be deleted stays, and the others
// follow, until the listing or several items in a row fail. err is the first failure; a refusal is none.
func Sweep[T any](
	ctx context.Context, pages iter.Seq2[[]T, error], remove func(context.Context, T) (bool, error),
) (swept Swept, err error) {
	failures := 0
	for page, listed := range pages {
		if listed != nil {
			return swept, errors.Join(err, listed)
		}
		for _, item := range page {
			removed, failed := remove(ctx, item)
			switch {
			case failed == nil:
				failures = 0
			case errors.Is(failed, object.ErrRefused):
				failures = 0
				if swept.Refused++; swept.Refusal == nil {
					swept.Refusal = failed
				}
			default:
				failures++
				if err == nil {
					err = failed
				}
			}
			if removed && failed == nil {
				swept.Deleted++
			}
			if failures == maxFailures || ctx.Err() != nil {
				return swept, err
			}
		}
	}
	return swept, err
}
