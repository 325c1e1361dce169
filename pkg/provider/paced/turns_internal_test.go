package paced

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// throttledTurns are turns of two a second.
func throttledTurns(told func(Throttling)) *turns {
	t := &turns{what: "calls", began: told}
	t.ended(time.Now(), provider.ErrThrottled)
	t.pace.rate = 2
	return t
}

func TestTurnsAreGivenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Throttling
		turns := throttledTurns(func(p Throttling) { told = append(told, p) })
		if len(told) != 1 || !errors.Is(told[0].Err, provider.ErrThrottled) || turns.rate() == 0 {
			t.Errorf("told %v", told)
		}
		var mu sync.Mutex
		var got []string
		wait := func(name string, where line) {
			go func() {
				if err := turns.wait(t.Context(), where, time.Hour); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, name)
			}()
			synctest.Wait()
		}
		wait("list", behind)
		wait("poll", behind)
		wait("stream", inFront)
		if at, ok := turns.acquire(time.Now()); ok || !at.After(time.Now()) {
			t.Errorf("a turn is taken before those who wait")
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if want := []string{"stream", "list", "poll"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if _, ok := turns.acquire(time.Now().Add(time.Second)); !ok {
			t.Errorf("no turn although nothing waits")
		}
	})
}

func TestWaitForATurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := throttledTurns(func(Throttling) {})
		if err := turns.wait(t.Context(), inFront, 100*time.Millisecond); !provider.Definite(err) || !errors.Is(err, provider.ErrThrottled) {
			t.Errorf("without patience: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := turns.wait(ctx, behind, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when the context ends: %v", err)
		}
		if turns.timer != nil {
			t.Errorf("a timer is left although nothing waits")
		}
		// What waits when it is over goes at once.
		done := make(chan error, 1)
		turns.pace.rate = leastRate
		go func() { done <- turns.wait(t.Context(), behind, time.Hour) }()
		synctest.Wait()
		if again, over := turns.calm(turns.pace.over()); !over || !again.IsZero() {
			t.Errorf("not over: %s", again)
		}
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("still waiting")
		}
	})
}

// TestBrokenStreamsGoBeforeOtherReads: while reads are throttled the question about an
// instance that may be lost is the next one, and questions that wait go together.
func TestBrokenStreamsGoBeforeOtherReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := fake.New(fake.Config{})
		var workers sync.WaitGroup
		c := New(Config{
			Provider: world.Open(provider.Scope{ClusterID: "test", Shard: "one"}, "server"), Limits: Limits{Deletes: 1},
			Timeout: func() time.Duration { return time.Second }, Go: workers.Go, Began: func(Throttling) {},
		})
		c.reads.ended(time.Now(), provider.ErrThrottled)
		workers.Go(func() {
			if _, err := c.List(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		refs := []provider.Ref{{ID: "a"}, {ID: "b"}}
		workers.Go(func() { c.Get(t.Context(), refs...) })
		synctest.Wait()
		c.Poll(t.Context(), []provider.Ref{{ID: "lost"}}, true, func(Answer) {})
		workers.Wait()
		var got []string
		for _, call := range world.Calls() {
			got = append(got, fmt.Sprintf("%s %d %s", call.Op, len(call.Refs), call.Ref.ID))
		}
		if want := []string{"get 1 lost", "list 0 ", "get 2 a"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
