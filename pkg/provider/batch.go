package provider

import (
	"context"
	"fmt"
	"sync"
)

// MaxBatch is the maximum number of VMs in one Get or Delete.
const MaxBatch = 100

// Answer is the result of a Get for one VM. VM is valid if Err is nil.
type Answer struct {
	VM  VM
	Err error
}

// CheckBatch returns ErrInvalid if there are too many refs for one call.
func CheckBatch(refs []Ref) error {
	if len(refs) > MaxBatch {
		return fmt.Errorf("%w: %d references in one call: want at most %d", ErrInvalid, len(refs), MaxBatch)
	}
	return nil
}

// GetOne gets a single VM.
func GetOne(ctx context.Context, p Provider, ref Ref) (VM, error) {
	a := p.Get(ctx, []Ref{ref})[0]
	return a.VM, a.Err
}

// DeleteOne deletes a single VM.
func DeleteOne(ctx context.Context, p Provider, ref Ref) error {
	return p.Delete(ctx, []Ref{ref})[0]
}

// GetEach implements Get for a provider without batches: it calls get for each ref, with at
// most limit concurrent calls.
func GetEach(refs []Ref, limit int, get func(Ref) (VM, error)) []Answer {
	return each(refs, limit, func(ref Ref, err error) (a Answer) {
		if a.Err = err; err == nil {
			a.VM, a.Err = get(ref)
		}
		return a
	})
}

// DeleteEach implements Delete for a provider without batches: it calls remove for each ref,
// with at most limit concurrent calls.
func DeleteEach(refs []Ref, limit int, remove func(Ref) error) []error {
	return each(refs, limit, func(ref Ref, err error) error {
		if err != nil {
			return err
		}
		return remove(ref)
	})
}

// each calls do for each ref, with the error of the batch as a whole if there is one.
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
