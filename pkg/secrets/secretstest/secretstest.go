// Package secretstest tests implementations of secrets.Secrets.
package secretstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/secrets"
)

// Fault is a failure of a write.
type Fault int

// The faults.
const (
	Dropped Fault = iota // no effect, and no response
	Lost                 // takes effect, but no response
)

// World is an empty store of secrets.
type World struct {
	// Open returns the secrets as another process sees them.
	Open func(t *testing.T) secrets.Secrets
	// Fail makes the next n writes fail.
	Fail func(f Fault, n int)
	// Down makes all calls fail.
	Down func()
	// Limit is the maximum length of a value, in bytes.
	Limit int
	// Eventual is how long reads may lag behind writes.
	Eventual time.Duration
}

// Harness creates worlds. Around runs each test; testing/synctest.Test fits.
type Harness struct {
	New    func(t *testing.T) World
	Around func(t *testing.T, f func(*testing.T))
}

// Run runs the tests.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, World)
	}{
		{"CreateGet", testCreateGet},
		{"CreatedOnce", testCreatedOnce},
		{"CreateRace", testCreateRace},
		{"NotFound", testNotFound},
		{"Names", testNames},
		{"Lengths", testLengths},
		{"ValueIsTheCallers", testValueIsTheCallers},
		{"Replace", testReplace},
		{"Faults", testFaults},
		{"FaultsOfWhoIsLate", testFaultsOfWhoIsLate},
		{"Down", testDown},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.Around(t, func(t *testing.T) { c.test(t, h.New(t)) })
		})
	}
}

func create(t *testing.T, s secrets.Secrets, name, value string, want bool) {
	t.Helper()
	if created, err := s.Create(t.Context(), name, []byte(value)); err != nil || created != want {
		t.Errorf("create %s: %t, %v; want %t", name, created, err, want)
	}
}

func has(t *testing.T, s secrets.Secrets, name, want string) {
	t.Helper()
	if got, err := s.Get(t.Context(), name); err != nil || string(got) != want {
		t.Errorf("get %s: %q, %v; want %q", name, got, err, want)
	}
}

// testCreateGet: a created value is visible at once, to all readers.
func testCreateGet(t *testing.T, w World) {
	a, b := w.Open(t), w.Open(t)
	every := make([]byte, 256)
	for n := range every {
		every[n] = byte(n)
	}
	for n, value := range []string{"value", string(every), "line\n", " ", "ü"} {
		name := fmt.Sprintf("n%d", n)
		create(t, a, name, value, true)
		has(t, b, name, value)
		has(t, a, name, value)
	}
}

func testCreatedOnce(t *testing.T, w World) {
	a, b := w.Open(t), w.Open(t)
	create(t, a, "x", "first", true)
	create(t, b, "x", "second", false)
	create(t, a, "x", "first", false)
	create(t, b, "X", "other", true)
	has(t, b, "x", "first")
}

// testCreateRace: of concurrent creates exactly one succeeds, even with equal values.
func testCreateRace(t *testing.T, w World) {
	for _, same := range []bool{false, true} {
		const racers = 5
		won, name := make(chan string, racers), fmt.Sprintf("x%t", same)
		for n := range racers {
			s, value := w.Open(t), "same"
			if !same {
				value = fmt.Sprintf("value %d", n)
			}
			go func() {
				created, err := s.Create(t.Context(), name, []byte(value))
				if err != nil {
					t.Errorf("create: %v", err)
				}
				if !created {
					value = ""
				}
				won <- value
			}()
		}
		var winners []string
		for range racers {
			if value := <-won; value != "" {
				winners = append(winners, value)
			}
		}
		if len(winners) != 1 {
			t.Fatalf("%v created it, want one", winners)
		}
		has(t, w.Open(t), name, winners[0])
	}
}

func testNotFound(t *testing.T, w World) {
	if got, err := w.Open(t).Get(t.Context(), "x"); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("get what is not there: %q, %v", got, err)
	}
}

func testNames(t *testing.T, w World) {
	s := w.Open(t)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "-x", "x.", "a b", "é", strings.Repeat("x", 129)} {
		_, got := s.Get(t.Context(), name)
		_, created := s.Create(t.Context(), name, []byte("v"))
		for verb, err := range map[string]error{"get": got, "create": created, "replace": s.Replace(t.Context(), name, []byte("v"))} {
			if err == nil || errors.Is(err, secrets.ErrNotFound) || errors.Is(err, object.ErrUnknown) {
				t.Errorf("%s %q: %v, want a refusal", verb, name, err)
			}
		}
	}
	long := strings.Repeat("x", 128)
	create(t, s, long, "v", true)
	create(t, s, "A.b_c-d.0", "v", true)
	has(t, s, long, "v")
}

func testLengths(t *testing.T, w World) {
	s := w.Open(t)
	most := strings.Repeat("x", w.Limit)
	create(t, s, "most", most, true)
	has(t, s, "most", most)
	_, created := s.Create(t.Context(), "more", []byte(most+"x"))
	for verb, err := range map[string]error{"create": created, "replace": s.Replace(t.Context(), "most", []byte(most+"x"))} {
		if err == nil || errors.Is(err, object.ErrUnknown) || !strings.Contains(err.Error(), fmt.Sprint(w.Limit)) {
			t.Errorf("%s what is too long: %v, want a refusal that names %d", verb, err, w.Limit)
		}
	}
}

func testValueIsTheCallers(t *testing.T, w World) {
	s, value := w.Open(t), []byte("value")
	if _, err := s.Create(t.Context(), "x", value); err != nil {
		t.Fatal(err)
	}
	copy(value, "other")
	got, err := s.Get(t.Context(), "x")
	if err != nil || !bytes.Equal(got, []byte("value")) {
		t.Fatalf("get: %q, %v", got, err)
	}
	copy(got, "other")
	has(t, s, "x", "value")
}

func testReplace(t *testing.T, w World) {
	a, b := w.Open(t), w.Open(t)
	for _, value := range []string{"one", "two", "two", "three"} {
		if err := a.Replace(t.Context(), "x", []byte(value)); err != nil {
			t.Fatalf("replace: %v", err)
		}
		time.Sleep(w.Eventual)
		has(t, b, "x", value)
	}
	create(t, b, "x", "four", false)
}

// testFaults: a writer learns the outcome of its write.
func testFaults(t *testing.T, w World) {
	for name, f := range map[string]Fault{"dropped": Dropped, "lost": Lost} {
		for _, times := range []int{1, 3} {
			s, key := w.Open(t), fmt.Sprint(name, times)
			w.Fail(f, times)
			create(t, s, key, "mine", true)
			create(t, w.Open(t), key, "mine", false)
			has(t, s, key, "mine")
			w.Fail(f, times)
			if err := s.Replace(t.Context(), key, []byte("new")); err != nil {
				t.Errorf("replace, %s %d times: %v", name, times, err)
			}
			time.Sleep(w.Eventual)
			has(t, s, key, "new")
		}
	}
}

// testFaultsOfWhoIsLate: a create in doubt is not mistaken for another writer's.
func testFaultsOfWhoIsLate(t *testing.T, w World) {
	a, b := w.Open(t), w.Open(t)
	for n, value := range []string{"theirs", "mine"} {
		key := fmt.Sprintf("x%d", n)
		create(t, a, key, "theirs", true)
		w.Fail(Dropped, 1)
		create(t, b, key, value, false)
		w.Fail(Lost, 1)
		create(t, b, key, value, false)
		has(t, b, key, "theirs")
	}
}

func testDown(t *testing.T, w World) {
	s := w.Open(t)
	w.Down()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	created, failed := s.Create(ctx, "x", []byte("v"))
	_, got := s.Get(ctx, "x")
	for verb, err := range map[string]error{"create": failed, "replace": s.Replace(ctx, "x", []byte("v")), "get": got} {
		if created || !errors.Is(err, object.ErrUnknown) || errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("%s: %t, %v; want ErrUnknown", verb, created, err)
		}
	}
}
