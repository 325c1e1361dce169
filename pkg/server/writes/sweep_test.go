package writes_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/object"
	_ "github.com/nstance/nstance/pkg/rapidseed"
	"github.com/nstance/nstance/pkg/server/writes"
)

var errStore = errors.New("store")

// outcomes yields items in pages of up to three.
func outcomes(all []error, last error) iter.Seq2[[]error, error] {
	return func(yield func([]error, error) bool) {
		for page := range slices.Chunk(all, 3) {
			if !yield(page, nil) {
				return
			}
		}
		if last != nil {
			yield(nil, last)
		}
	}
}

// TestSweep: everything is tried until five in a row fail. What the store refuses is no failure, and
// neither a refused read nor a refused delete stops what follows.
func TestSweep(t *testing.T) {
	kinds := []error{nil, errStore, fmt.Errorf("read: %w", object.Refused(errStore)), fmt.Errorf("delete: %w", object.ErrRefused)}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.SampledFrom(kinds)).Draw(t, "outcomes")
		var tried []error
		swept, err := writes.Sweep(context.Background(), outcomes(all, nil), func(_ context.Context, outcome error) (bool, error) {
			tried = append(tried, outcome)
			return outcome == nil, outcome
		})
		ofKind := map[error]int{}
		inARow, want := 0, all
		for n, outcome := range all {
			if inARow++; !errors.Is(outcome, errStore) || errors.Is(outcome, object.ErrRefused) {
				inARow = 0
			}
			if inARow == 5 {
				want = all[:n+1]
				break
			}
		}
		for _, outcome := range want {
			ofKind[outcome]++
		}
		if len(tried) != len(want) {
			t.Fatalf("%d were tried, want %d", len(tried), len(want))
		}
		refused := ofKind[kinds[2]] + ofKind[kinds[3]]
		if swept.Deleted != ofKind[nil] || swept.Refused != refused || (swept.Refusal != nil) != (refused > 0) {
			t.Errorf("%+v, want %d deleted and %d refused", swept, ofKind[nil], refused)
		}
		if (err != nil) != (ofKind[errStore] > 0) {
			t.Errorf("error: %v", err)
		}
	})
}

// TestSweepEnds: at the listing's error, which is told beside the others, and at the end of the context.
func TestSweepEnds(t *testing.T) {
	errList := errors.New("list")
	ctx, cancel := context.WithCancel(t.Context())
	swept, err := writes.Sweep(ctx, outcomes([]error{nil, errStore, nil, nil}, errList), func(_ context.Context, outcome error) (bool, error) {
		return outcome == nil, outcome
	})
	if swept.Deleted != 3 || !errors.Is(err, errList) || !errors.Is(err, errStore) {
		t.Errorf("%+v, %v", swept, err)
	}
	swept, _ = writes.Sweep(ctx, outcomes([]error{nil, nil, nil, nil}, nil), func(context.Context, error) (bool, error) {
		cancel()
		return true, nil
	})
	if swept.Deleted != 1 {
		t.Errorf("%d were deleted after the end", swept.Deleted-1)
	}
}

// TestSweepOfProtectedItems ends after a thousand refusals in a row: then all are protected.
func TestSweepOfProtectedItems(t *testing.T) {
	refused := make([]error, 3000)
	for n := range refused {
		refused[n] = object.ErrRefused
	}
	refused[900] = nil
	swept, err := writes.Sweep(t.Context(), outcomes(refused, nil), func(_ context.Context, outcome error) (bool, error) {
		return outcome == nil, outcome
	})
	if swept.Refused != 1900 || swept.Deleted != 1 || err != nil {
		t.Errorf("%+v, %v", swept, err)
	}
}
