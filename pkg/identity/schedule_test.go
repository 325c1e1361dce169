package identity_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/identity"
)

// kept runs RunRenewal until it is done, and returns the times of the attempts, and the waits
// after failed ones.
func kept(t *testing.T, lasts time.Duration, random float64, answer func(n int) error) (at, waits []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		id := open(t, holding(t, s.Authority, &memory{}))
		began := time.Now()
		s.spoil = func(string, *identity.Issued) error {
			at = append(at, time.Since(began))
			return answer(len(at))
		}
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		id.RunRenewal(ctx, identity.RenewalConfig{Ask: s.ask, Random: func() float64 { return random },
			Done: func(_ context.Context, err error, wait time.Duration) {
				if err != nil {
					waits = append(waits, wait)
				}
			}})
		if time.Since(began) != lasts {
			t.Errorf("it ended after %s", time.Since(began))
		}
	})
	return at, waits
}

// TestKeep: one-hour certificates are renewed after 40 minutes, or up to 3 minutes sooner.
func TestKeep(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 40 * time.Minute, 0.5: 38*time.Minute + 30*time.Second} {
		at, _ := kept(t, 2*time.Hour+5*time.Minute, random, func(int) error { return nil })
		if len(at) != 3 {
			t.Fatalf("at %v", at)
		}
		for n, one := range at {
			if want := time.Duration(n+1) * want; one < want || one > want+time.Second {
				t.Errorf("with %v: at %v, want every %s", random, at, want)
			}
		}
	}
}

// TestKeepTriesAgain: with waits that double, up to an hour.
func TestKeepTriesAgain(t *testing.T) {
	at, waits := kept(t, 24*time.Hour, 0.999999, func(int) error { return errors.New("not now") })
	want := 12 * time.Second // a 300th of the lifetime
	for n, wait := range waits {
		if wait > want || wait < want-time.Second {
			t.Errorf("wait %d is %s, want %s", n, wait, want)
		}
		want = min(2*want, time.Hour)
	}
	if len(at) < 20 {
		t.Errorf("%d attempts in a day", len(at))
	}
	_, waits = kept(t, time.Hour, 0, func(int) error { return errors.New("not now") })
	if waits[0] != 6*time.Second || waits[1] != 12*time.Second {
		t.Errorf("the shortest waits are %v", waits)
	}
}

// TestOnUse: after two thirds of the lifetime, and a twentieth of it after an attempt.
func TestOnUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := config(holding(t, s.Authority, &memory{}))
		began := time.Now()
		for passed, want := range map[time.Duration]struct {
			due  bool
			next time.Duration
		}{
			0:                {false, 40 * time.Minute},
			38 * time.Minute: {false, 3 * time.Minute}, // not less than after an attempt
			41 * time.Minute: {true, 3 * time.Minute},
			2 * time.Hour:    {true, 3 * time.Minute},
			-5 * time.Hour:   {false, time.Hour},
		} {
			c.Now = func() time.Time { return began.Add(passed) }
			id, err := identity.Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if next := id.NextCheck(); id.Due() != want.due || next > want.next || next < want.next-2*time.Second {
				t.Errorf("after %s: due %v, next check in %s", passed, id.Due(), next)
			}
			if wait := id.RetryOnUse(); wait != 3*time.Minute {
				t.Errorf("tried again after %s", wait)
			}
		}
	})
}
