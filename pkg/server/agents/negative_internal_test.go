package agents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// slowStore is a store that counts its requests.
type slowStore struct {
	asked atomic.Int64
	err   error
	slow  time.Duration
}

func (r *slowStore) fetch(ctx context.Context, _ string, id fleet.InstanceID) (fleet.Instance, error) {
	r.asked.Add(1)
	select {
	case <-time.After(r.slow):
		return fleet.Instance{ID: id}, r.err
	case <-ctx.Done():
		return fleet.Instance{}, ctx.Err()
	}
}

// TestAbsentRecordIsReadOnceAMinute: an agent without a record calls continuously.
func TestAbsentRecordIsReadOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a := &slowStore{err: fmt.Errorf("get: %w", ledger.ErrNotFound)}, newNegativeCache(time.Now)
		for range 180 {
			if _, err := a.fetch(t.Context(), "default", "a", store.fetch); !errors.Is(err, ledger.ErrNotFound) {
				t.Fatalf("an absent one: %v", err)
			}
			time.Sleep(time.Second)
		}
		if n := store.asked.Load(); n != 3 {
			t.Errorf("the store was asked %d times in three minutes, want 3", n)
		}
		if _, err := a.fetch(t.Context(), "other", "a", store.fetch); !errors.Is(err, ledger.ErrNotFound) || store.asked.Load() != 4 {
			t.Errorf("another tenant's is another one: %v, asked %d times", err, store.asked.Load())
		}
	})
}

// TestPresentAndUnknownAreNotRemembered: only a NotFound makes an instance absent.
func TestPresentAndUnknownAreNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a := &slowStore{}, newNegativeCache(time.Now)
		for n, err := range []error{nil, errors.New("timeout"), nil} {
			store.err = err
			i, got := a.fetch(t.Context(), "default", "a", store.fetch)
			if !errors.Is(got, err) || i.ID != "a" || store.asked.Load() != int64(n+1) {
				t.Errorf("look %d: %v, %v, asked %d times", n+1, i.ID, got, store.asked.Load())
			}
		}
	})
}

// TestTogetherTheyAskOnce: concurrent callers share one read, and the first may leave.
func TestTogetherTheyAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a := &slowStore{slow: time.Second}, newNegativeCache(time.Now)
		first, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := a.fetch(first, "default", "a", store.fetch)
			left <- err
		}()
		synctest.Wait()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if i, err := a.fetch(t.Context(), "default", "a", store.fetch); err != nil || i.ID != "a" {
					t.Errorf("%v, %v", i.ID, err)
				}
			})
		}
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left: %v", err)
		}
		all.Wait()
		if n := store.asked.Load(); n != 1 {
			t.Errorf("the store was asked %d times, want once", n)
		}
	})
}

func TestNegativeCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a := &slowStore{err: ledger.ErrNotFound}, newNegativeCache(time.Now)
		for n := range maxAbsent + 100 {
			id := fleet.InstanceID(fmt.Sprint(n))
			if _, err := a.fetch(t.Context(), "default", id, store.fetch); !errors.Is(err, ledger.ErrNotFound) {
				t.Fatal(err)
			}
		}
		if n := len(a.until); n != maxAbsent {
			t.Errorf("%d are remembered, want %d", n, maxAbsent)
		}
		time.Sleep(absentFor)
		_, _ = a.fetch(t.Context(), "default", "new", store.fetch)
		if n := len(a.until); n != 1 {
			t.Errorf("%d are remembered after their time, want the new one", n)
		}
	})
}

// TestAbsentAreForgotten: of ten thousand absent instances only those of the last minute are
// remembered.
func TestAbsentAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a := &slowStore{err: ledger.ErrNotFound}, newNegativeCache(time.Now)
		for n := range 10_000 {
			_, _ = a.fetch(t.Context(), "default", fleet.InstanceID(fmt.Sprint(n)), store.fetch)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * absentFor)
		_, _ = a.fetch(t.Context(), "default", "last", store.fetch)
		if n := len(a.until); n != 1 {
			t.Errorf("%d are remembered, want the last one", n)
		}
	})
}
