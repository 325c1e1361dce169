// Package noncetest is the contract of nonce.Spender as a test suite, to be run
// on every implementation.
package noncetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/nonce"
)

// Open returns two spenders that share one durable state, as two servers do,
// fresh for every call and ready for a nonce with these claims.
type Open func(t *testing.T, claims nonce.Claims) (a, b nonce.Spender)

// Run runs the suite. claims is a nonce that the spenders can bind, valid at now.
func Run(t *testing.T, claims nonce.Claims, now time.Time, open Open) {
	t.Helper()
	for name, test := range map[string]func(suite, *testing.T){
		"the first key binds and may come again":   suite.repeat,
		"another key is refused for ever":          suite.otherKey,
		"of racing keys exactly one wins":          suite.race,
		"a call that is cancelled binds nobody":    suite.cancelled,
		"racing calls with one key all succeed":    suite.sameKeyRace,
		"what one server bound, the other honours": suite.otherServer,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t, claims)
			test(suite{claims, now, a, b}, t)
		})
	}
}

type suite struct {
	claims nonce.Claims
	now    time.Time
	a, b   nonce.Spender
}

// key makes the n-th of a row of key hashes.
func key(n int) string { return strings.Repeat("0", 60) + fmt.Sprintf("%04x", n) }

func (s suite) spend(t *testing.T, by nonce.Spender, n int) error {
	t.Helper()
	return by.Spend(t.Context(), s.claims, key(n), s.now)
}

func (s suite) repeat(t *testing.T) {
	for i := range 3 {
		if err := s.spend(t, s.a, 1); err != nil {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
}

func (s suite) otherKey(t *testing.T) {
	if err := s.spend(t, s.a, 1); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := s.spend(t, s.a, 2); !errors.Is(err, nonce.ErrSpent) {
			t.Fatalf("call %d: got %v, want ErrSpent", i+1, err)
		}
	}
	if err := s.spend(t, s.a, 1); err != nil {
		t.Errorf("the first key, after another was refused: %v", err)
	}
}

func (s suite) otherServer(t *testing.T) {
	if err := s.spend(t, s.a, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.spend(t, s.b, 1); err != nil {
		t.Errorf("same key: %v", err)
	}
	if err := s.spend(t, s.b, 2); !errors.Is(err, nonce.ErrSpent) {
		t.Errorf("other key: got %v, want ErrSpent", err)
	}
}

func (s suite) race(t *testing.T) {
	const racers = 16
	results := s.together(t, racers, func(i int) string { return key(i) })
	winner := -1
	for i, err := range results {
		switch {
		case err == nil && winner >= 0:
			t.Errorf("keys %d and %d both won", winner, i)
		case err == nil:
			winner = i
		}
	}
	// A racer may fail without knowing the outcome; asked again, each is told.
	for i := range racers {
		err := s.spend(t, s.a, i)
		if err == nil && winner < 0 {
			winner = i
		}
		if (err == nil) != (i == winner) || (err != nil && !errors.Is(err, nonce.ErrSpent)) {
			t.Errorf("key %d, asked again: %v; the winner is %d", i, err, winner)
		}
	}
	if winner < 0 {
		t.Error("no key won")
	}
}

func (s suite) sameKeyRace(t *testing.T) {
	for i, err := range s.together(t, 16, func(int) string { return key(1) }) {
		if errors.Is(err, nonce.ErrSpent) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := s.spend(t, s.b, 1); err != nil {
		t.Errorf("asked again: %v", err)
	}
}

// together spends from both servers at once.
func (s suite) together(t *testing.T, n int, key func(int) string) []error {
	results := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		by := s.a
		if i%2 == 1 {
			by = s.b
		}
		all.Go(func() { results[i] = by.Spend(t.Context(), s.claims, key(i), s.now) })
	}
	all.Wait()
	return results
}

func (s suite) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.a.Spend(ctx, s.claims, key(1), s.now); err == nil || errors.Is(err, nonce.ErrSpent) {
		t.Errorf("got %v, want the context's error", err)
	}
	if err := s.spend(t, s.a, 2); err != nil {
		t.Errorf("another key afterwards: %v", err)
	}
}
