package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

func TestDelayDoublesUpToItsLimit(t *testing.T) {
	b := retry.Backoff{First: time.Second, Limit: 10 * time.Second}
	for n, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second,
		3: 4 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 1 << 40: 10 * time.Second,
	} {
		if got := b.Delay(n); got != want {
			t.Errorf("after failure %d: %s, want %s", n, got, want)
		}
	}
	if got := (retry.Backoff{First: time.Minute, Limit: time.Second}).Delay(1); got != time.Second {
		t.Errorf("first above the limit: %s, want the limit", got)
	}
	if got := (retry.Backoff{First: 1, Limit: 1<<63 - 1}).Delay(1 << 40); got != 1<<63-1 {
		t.Errorf("beyond what a duration holds: %s, want the limit", got)
	}
}

func TestDrawTakesFromTheWholeDelay(t *testing.T) {
	b := retry.Backoff{First: time.Second, Limit: time.Minute, Least: 200 * time.Millisecond}
	for random, want := range map[float64]time.Duration{0: 200 * time.Millisecond, 0.5: 2100 * time.Millisecond, 1: 4 * time.Second} {
		if got := b.Draw(3, func() float64 { return random }); got != want {
			t.Errorf("at %v: %s, want %s", random, got, want)
		}
	}
	b.Limit = 100 * time.Millisecond
	if got := b.Draw(1, func() float64 { return 0.9 }); got != b.Least {
		t.Errorf("with a limit below the least: %s, want the least", got)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := retry.Wait(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		over := errors.New("over")
		time.AfterFunc(time.Second, func() { cancel(over) })
		began = time.Now()
		if err := retry.Wait(ctx, time.Hour); !errors.Is(err, over) || time.Since(began) != time.Second {
			t.Errorf("%v after %s, want the cause after 1s", err, time.Since(began))
		}
	})
}
