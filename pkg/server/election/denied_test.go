package election_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/election"
)

// marked is a store with a delete marker that refuses if-absent while on is true.
type marked struct {
	object.Store
	on atomic.Bool
}

func (s *marked) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	if s.on.Load() && pre.Absent() {
		return "", object.ErrConflict
	}
	return s.Store.Put(ctx, key, body, pre)
}

// TestDeniedRecord: an elector reports that the store refuses to create the record although none
// exists, and leads once the store accepts it.
func TestDeniedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &marked{Store: mem.New(mem.Config{})}
		store.on.Store(true)
		e, err := election.New(election.Config{
			Store: store, Key: key, Holder: "a", Timing: defaults, FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done, leads := make(chan struct{}), make(chan struct{}, 1)
		go func() {
			defer close(done)
			_ = e.Run(ctx, func(ctx context.Context, _ *election.Term) error { leads <- struct{}{}; <-ctx.Done(); return nil })
		}()
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		p, err := e.AwaitBlocked(within, election.Blocked{})
		if err != nil || !p.Denied {
			t.Errorf("blocked %+v, %v: want Denied", p, err)
		}
		store.on.Store(false)
		soon(t, leads, "the lead")
		if p, err = e.AwaitBlocked(within, p); err != nil || p != (election.Blocked{}) {
			t.Errorf("blocked %+v, %v: want none", p, err)
		}
		stop()
		soon(t, done, "the end of the elector")
	})
}
