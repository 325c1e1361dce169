package provider

import (
	"context"
	"fmt"
	"sync"
)

// MaxBatch is how many VMs one Get or Delete may name.
const MaxBatch = 100

// Answer is what a Get found out about one VM. VM is valid when Err is nil.
type Answer struct {
	VM  VM
	Err error
}

// CheckBatch reports, as ErrInvalid, that there are too many refs for one call.
func CheckBatch(refs []Ref) error {
	if len(refs) > MaxBatch {
		return fmt.Errorf("%w: %d references in one call: want at most %d", ErrInvalid, len(refs), MaxBatch)
	}
	return nil
}

// GetOne asks p for a single VM.
func GetOne(ctx context.Context, p Provider, ref Ref) (VM, error) {
	a := p.Get(ctx, []Ref{ref})[0]
	return a.VM, a.Err
}

// DeleteOne asks p for the removal of a single VM.
func DeleteOne(ctx context.Context, p Provider, ref Ref) error {
	return p.Delete(ctx, []Ref{ref})[0]
}

// GetEach is the Get of a provider that can only ask for one VM at a time: get
// is called for each, at most limit at the same time.
func GetEach(refs []Ref, limit int, get func(Ref) (VM, error)) []Answer {
	return each(refs, limit, func(ref Ref, err error) (a Answer) {
		if a.Err = err; err == nil {
			a.VM, a.Err = get(ref)
		}
		return a
	})
}

// DeleteEach is the Delete of a provider that can only delete one VM at a time:
// remove is called for each, at most limit at the same time.
func DeleteEach(refs []Ref, limit int, remove func(Ref) error) []error {
	return each(refs, limit, func(ref Ref, err error) error {
		if err != nil {
			return err
		}
		return remove(ref)
	})
}

// each calls do for each ref, with what is wrong with the batch as a whole.
func each[T any](refs []Ref, limit int, do func(Ref, error) T) []T {
	wrong := CheckBatch(refs)
	out := make([]T, len(refs))
	room := make(chan struct{}, limit)
	var calls sync.WaitGroup
	for n, ref := range refs {
		room <- struct{}{}
		calls.Go(func() {
			defer func() { <-room }()
			out[n] = do(ref, wrong)
		})
	}
	calls.Wait()
	return out
}
