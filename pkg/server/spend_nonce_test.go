package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nstance/nstance/pkg/nonce"
)

// errSpent: the nonce is bound to another public key.
var errSpent = errors.New("nonce was spent with another key")

// nonceSpender binds a verified nonce to the presented public key.
//
// spend returns nil if the nonce is durably bound to the key: by this call, or by an earlier one
// with the same key, even if its reply was lost. It returns errSpent if the nonce is bound to
// another key, which is permanent. After any other error the outcome is unknown: repeating the
// call, on any server, resolves it.
type nonceSpender interface {
	spend(ctx context.Context, claims nonce.Claims, key string) error
}

// spendingSuite is the contract of every way to spend a nonce.
type spendingSuite struct {
	claims nonce.Claims
	a, b   nonceSpender // two servers that share one durable state
}

// runSpendingSuite runs the suite. claims is a nonce that the spenders can bind;
// open returns two that are fresh for every call.
func runSpendingSuite(t *testing.T, claims nonce.Claims, open func(t *testing.T) (a, b nonceSpender)) {
	t.Helper()
	for what, test := range map[string]func(spendingSuite, *testing.T){
		"the first key binds and may come again":   spendingSuite.repeat,
		"another key is refused for ever":          spendingSuite.otherKey,
		"of racing keys exactly one wins":          spendingSuite.race,
		"a call that is cancelled binds no key":    spendingSuite.cancelled,
		"racing calls with one key all succeed":    spendingSuite.sameKeyRace,
		"what one server bound, the other honours": spendingSuite.otherServer,
	} {
		t.Log(what)
		a, b := open(t)
		test(spendingSuite{claims, a, b}, t)
	}
}

// keyName returns the n-th key hash of a sequence.
func keyName(n int) string { return strings.Repeat("0", 60) + fmt.Sprintf("%04x", n) }

func (s spendingSuite) try(t *testing.T, by nonceSpender, n int) error {
	t.Helper()
	return by.spend(t.Context(), s.claims, keyName(n))
}

func (s spendingSuite) repeat(t *testing.T) {
	for i := range 3 {
		if err := s.try(t, s.a, 1); err != nil {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
}

func (s spendingSuite) otherKey(t *testing.T) {
	if err := s.try(t, s.a, 1); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := s.try(t, s.a, 2); !errors.Is(err, errSpent) {
			t.Fatalf("call %d: got %v, want errSpent", i+1, err)
		}
	}
	if err := s.try(t, s.a, 1); err != nil {
		t.Errorf("the first key, after another was refused: %v", err)
	}
}

func (s spendingSuite) otherServer(t *testing.T) {
	if err := s.try(t, s.a, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.try(t, s.b, 1); err != nil {
		t.Errorf("same key: %v", err)
	}
	if err := s.try(t, s.b, 2); !errors.Is(err, errSpent) {
		t.Errorf("other key: got %v, want errSpent", err)
	}
}

func (s spendingSuite) race(t *testing.T) {
	const racers = 16
	results := s.together(t, racers, func(i int) string { return keyName(i) })
	winner := -1
	for i, err := range results {
		switch {
		case err == nil && winner >= 0:
			t.Errorf("keys %d and %d both won", winner, i)
		case err == nil:
			winner = i
		}
	}
	// A racer may fail with an unknown outcome; repeating the call resolves it.
	for i := range racers {
		err := s.try(t, s.a, i)
		if err == nil && winner < 0 {
			winner = i
		}
		if (err == nil) != (i == winner) || (err != nil && !errors.Is(err, errSpent)) {
			t.Errorf("key %d, asked again: %v; the winner is %d", i, err, winner)
		}
	}
	if winner < 0 {
		t.Error("no key won")
	}
}

func (s spendingSuite) sameKeyRace(t *testing.T) {
	for i, err := range s.together(t, 16, func(int) string { return keyName(1) }) {
		if errors.Is(err, errSpent) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := s.try(t, s.b, 1); err != nil {
		t.Errorf("asked again: %v", err)
	}
}

// together spends from both servers at once.
func (s spendingSuite) together(t *testing.T, n int, key func(int) string) []error {
	results := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		by := s.a
		if i%2 == 1 {
			by = s.b
		}
		all.Go(func() { results[i] = by.spend(t.Context(), s.claims, key(i)) })
	}
	all.Wait()
	return results
}

func (s spendingSuite) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.a.spend(ctx, s.claims, keyName(1)); err == nil || errors.Is(err, errSpent) {
		t.Errorf("got %v, want the context's error", err)
	}
	if err := s.try(t, s.a, 2); err != nil {
		t.Errorf("another key afterwards: %v", err)
	}
}
