package writes

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"github.com/nstance/nstance/pkg/object"
)

// The number of failures and of refusals in a row that end a sweep: the store is down, or protects them all.
const (
	maxFailures = 5
	maxRefusals = 1000
)

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
// follow, until the listing or many items in a row fail. err is the first failure; a refusal is none.
func Sweep[T any](
	ctx context.Context, pages iter.Seq2[[]T, error], remove func(context.Context, T) (bool, error),
) (swept Swept, err error) {
	failures, refusals := 0, 0
	for page, listed := range pages {
		if listed != nil {
			return swept, errors.Join(err, listed)
		}
		for _, item := range page {
			removed, failed := remove(ctx, item)
			switch {
			case failed == nil:
				failures, refusals = 0, 0
				if removed {
					swept.Deleted++
				}
			case errors.Is(failed, object.ErrRefused):
				failures, refusals = 0, refusals+1
				swept = swept.Add(Swept{Refused: 1, Refusal: failed})
			default:
				failures++
				err = cmp.Or(err, failed)
			}
			if failures == maxFailures || refusals == maxRefusals || ctx.Err() != nil {
				return swept, err
			}
		}
	}
	return swept, err
}
