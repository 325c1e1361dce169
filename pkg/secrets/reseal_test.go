package secrets_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/secrets"
)

// rotating returns the store of a cluster with secrets sealed by keyA, except one sealed by
// keyB.
func rotating(t testing.TB) object.Store {
	t.Helper()
	store := made(t)
	create(t, sealed(t, store, 11, keyA), "login", "of old", true)
	create(t, sealed(t, store, 12, keyB), "new", "of now", true)
	put(t, store, prefix+"a/b", "x") // not a valid secret name
	return store
}

// wantKey checks that a key alone opens everything, and the values.
func wantKey(t *testing.T, store object.Store, keys ...string) {
	t.Helper()
	s := sealed(t, store, 13, keys...)
	wantValue(t, s, "login", "of old")
	wantValue(t, s, "new", "of now")
	if _, err := secrets.Load(t.Context(), secrets.BootstrapConfig{Store: store, Secrets: s}); err != nil {
		t.Error(err)
	}
}

func states(done []secrets.Sealing) string {
	var all []string
	for _, d := range done {
		all = append(all, d.Name+" "+d.State)
	}
	return strings.Join(all, ", ")
}

func TestReseal(t *testing.T) {
	store := rotating(t)
	s := sealed(t, store, 1, keyB, keyA)
	const want = "ca-bundle resealed, ca.key resealed, login resealed, new current, registration-nonce.key resealed"
	if done, err := s.Reseal(t.Context()); err != nil || states(done) != want {
		t.Errorf("%s, %v; want %s", states(done), err, want)
	}
	wantKey(t, store, keyB)
	before := contents(t, store)
	done, err := s.Reseal(t.Context())
	if err != nil || strings.Contains(states(done), "resealed") || fmt.Sprint(before) != fmt.Sprint(contents(t, store)) {
		t.Errorf("once more: %s, %v", states(done), err)
	}
	if done, err := sealed(t, mem.New(mem.Config{}), 1, keyB, keyA).Reseal(t.Context()); err != nil || len(done) != 0 {
		t.Errorf("without any: %v, %v", done, err)
	}
}

// TestResealThatEndsHalfWay: after a failure at any request, both keys open everything, and
// the next call completes.
func TestResealThatEndsHalfWay(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"dropped": objecttest.Dropped, "reply lost": objecttest.ReplyLost} {
		for n, failed := 1, true; failed; n++ {
			synctest.Test(t, func(t *testing.T) {
				store := rotating(t)
				requests := 0
				faults := objecttest.NewFaults(store, func(objecttest.Request) objecttest.Outcome {
					switch requests++; {
					case requests == n:
						return objecttest.Outcome{Fault: fault}
					case requests > n:
						return objecttest.Outcome{Fault: objecttest.Dropped}
					}
					return objecttest.Outcome{}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := sealed(t, faults, 2, keyB, keyA).Reseal(ctx)
				if failed = err != nil; !failed && n < 20 {
					t.Errorf("it took %d requests", n-1)
				}
				wantKey(t, store, keyB, keyA)
				if _, err := sealed(t, store, 3, keyB, keyA).Reseal(t.Context()); err != nil {
					t.Errorf("again: %v", err)
				}
				wantKey(t, store, keyB)
			})
			if t.Failed() {
				t.Fatalf("%s at request %d", name, n)
			}
		}
	}
}

// TestResealLeavesWhatItCantOpen: such a secret is listed, the others are sealed, and the
// result is an error.
func TestResealLeavesWhatItCantOpen(t *testing.T) {
	store := rotating(t)
	const keyC = "cD5wJx8vBn3KyE6tQm1RzH9gLs2FpUa7"
	create(t, sealed(t, store, 14, keyC), "foreign", "value", true)
	put(t, store, prefix+"junk", "junk")
	before := contents(t, store)
	done, err := sealed(t, store, 1, keyB, keyA).Reseal(t.Context())
	if !errors.Is(err, secrets.ErrSealed) || !strings.Contains(err.Error(), prefix+"foreign") ||
		!strings.Contains(err.Error(), prefix+"junk") {
		t.Errorf("got %v, want ErrSealed that names both", err)
	}
	if text := states(done); !strings.Contains(text, "foreign unreadable") || !strings.Contains(text, "junk unreadable") ||
		!strings.Contains(text, "ca.key resealed") {
		t.Error(text)
	}
	after := contents(t, store)
	for _, name := range []string{"foreign", "junk"} {
		if before[prefix+name] != after[prefix+name] {
			t.Errorf("%s was written", name)
		}
	}
	wantKey(t, store, keyB)
}

// TestResealBesideWriters: a concurrently replaced secret keeps its new value, one that a
// server still seals with the old key is sealed again, and a server that keeps doing so is an
// error.
func TestResealBesideWriters(t *testing.T) {
	for n, happened := 1, true; happened; n++ {
		happened = false
		synctest.Test(t, func(t *testing.T) {
			store := rotating(t)
			late := sealed(t, store, 20, keyA)
			slow := &meanwhile{Store: store, n: n, what: func() {
				happened = true
				if err := sealed(t, store, 21, keyB, keyA).Replace(t.Context(), "login", []byte("replaced")); err != nil {
					t.Error(err)
				}
				create(t, late, "late", "value", true)
			}}
			done, err := sealed(t, slow, 22, keyB, keyA).Reseal(t.Context())
			if err != nil && !errors.Is(err, object.ErrConflict) {
				t.Errorf("before request %d: %s, %v", n, states(done), err)
			}
			if !happened {
				return
			}
			if _, err := sealed(t, store, 23, keyB, keyA).Reseal(t.Context()); err != nil {
				t.Error(err)
			}
			s := sealed(t, store, 24, keyB)
			wantValue(t, s, "login", "replaced")
			wantValue(t, s, "late", "value")
		})
	}
	store := rotating(t)
	late, n := sealed(t, store, 30, keyA), 0
	busy := &everyList{Store: store, what: func() { n++; create(t, late, fmt.Sprint("late", n), "value", true) }}
	if _, err := sealed(t, busy, 31, keyB, keyA).Reseal(t.Context()); err == nil || !strings.Contains(err.Error(), "restart every server") {
		t.Errorf("beside a server that knows only the old key: %v", err)
	}
}

// everyList calls a function before each listing.
type everyList struct {
	object.Store
	what func()
}

func (e *everyList) List(ctx context.Context, prefix, token string) (object.Page, error) {
	e.what()
	return e.Store.List(ctx, prefix, token)
}
