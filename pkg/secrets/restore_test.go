package secrets_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/secrets"
)

// trustParts are the objects of a trust, with the names that Restore uses.
func trustParts() map[string]string {
	return map[string]string{
		caCert: caCert, caKey: "secret ca.key", caBundle: "secret ca-bundle", nonceKey: "secret registration-nonce.key",
	}
}

func remove(t testing.TB, store object.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestore: whichever parts are missing, they are stored again, sealed as before, and a server
// that starts then has the same trust.
func TestRestore(t *testing.T) {
	all := slices.Sorted(maps.Keys(trustParts()))
	for mask := range 1 << len(all) {
		store := mem.New(mem.Config{})
		trust := bootstrap(t, store, 1)
		var gone, want []string
		for n, key := range all {
			if mask&(1<<n) != 0 {
				gone, want = append(gone, key), append(want, trustParts()[key])
			}
		}
		before := contents(t, store)
		remove(t, store, gone...)
		_, got, err := secrets.Restore(t.Context(), config(t, store, 2), trust)
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("without %q: stored %q, %v", gone, got, err)
		}
		for key, body := range contents(t, store) {
			if !slices.Contains(gone, key) && body != before[key] {
				t.Errorf("without %q: %s was changed", gone, key)
			}
		}
		if _, again, err := secrets.Restore(t.Context(), config(t, store, 3), trust); err != nil || len(again) > 0 {
			t.Errorf("without %q: stored %q again, %v", gone, again, err)
		}
		if next := bootstrap(t, store, 4); !same(next, trust) {
			t.Errorf("without %q: the next server has another trust", gone)
		}
	}
}

// TestRestoreKeepsARemovalOfACA: a part that is stored again has the CAs of the part that is left,
// not those that this server was started with.
func TestRestoreKeepsARemovalOfACA(t *testing.T) {
	for _, gone := range []string{caCert, caBundle} {
		store := mem.New(mem.Config{})
		bootstrap(t, store, 1)
		other := bootstrap(t, mem.New(mem.Config{}), 9)
		if _, err := secrets.TrustCAs(t.Context(), config(t, store, 2), other.Bundle); err != nil {
			t.Fatal(err)
		}
		trust := bootstrap(t, store, 3)
		if _, err := secrets.DistrustCA(t.Context(), config(t, store, 4), pki.Fingerprint(other.CA.Certificate())); err != nil {
			t.Fatal(err)
		}
		remove(t, store, gone)
		if _, _, err := secrets.Restore(t.Context(), config(t, store, 5), trust); err != nil {
			t.Fatal(err)
		}
		if next := bootstrap(t, store, 6); next.Bundle.Contains(other.CA.Certificate()) {
			t.Errorf("without %s: the removed CA is trusted again", gone)
		}
	}
}

// TestRestoreRefuses: if a part is damaged, of another cluster or sealed with another key, nothing
// is stored.
func TestRestoreRefuses(t *testing.T) {
	other := contents(t, func() object.Store { s := mem.New(mem.Config{}); bootstrap(t, s, 9); return s }())
	for key := range trustParts() {
		for name, body := range map[string]string{"damaged": "x", "of another cluster": other[key]} {
			if key == nonceKey && body == other[key] {
				continue // TestRestoreOfAnotherNonceKey
			}
			store := mem.New(mem.Config{})
			trust := bootstrap(t, store, 1)
			gone := caKey
			if key == caKey {
				gone = caCert
			}
			remove(t, store, gone, key)
			if _, err := store.Put(t.Context(), key, []byte(body), object.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			before := contents(t, store)
			_, got, err := secrets.Restore(t.Context(), config(t, store, 2), trust)
			if !errors.Is(err, secrets.ErrBrokenTrust) || len(got) > 0 || !maps.Equal(contents(t, store), before) {
				t.Errorf("%s is %s: stored %q, %v", key, name, got, err)
			}
		}
	}
}

// TestRestoreFails: while the store gives no answer, nothing is stored, and the next call does it.
func TestRestoreFails(t *testing.T) {
	store := mem.New(mem.Config{})
	trust := bootstrap(t, store, 1)
	remove(t, store, caKey)
	down := objecttest.NewFaults(store, objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
	if _, got, err := secrets.Restore(t.Context(), config(t, down, 2), trust); !errors.Is(err, object.ErrUnknown) || len(got) > 0 {
		t.Errorf("stored %q, %v", got, err)
	}
	if _, got, err := secrets.Restore(t.Context(), config(t, store, 3), trust); err != nil || len(got) != 1 {
		t.Errorf("stored %q, %v", got, err)
	}
}

// hooked is a store that calls before each Put.
type hooked struct {
	object.Store
	before func(key string)
}

func (h hooked) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	h.before(key)
	return h.Store.Put(ctx, key, body, pre)
}

// TestRestoreBesideABoot: if all is gone, and a server that boots meanwhile stores a new CA's key first,
// nothing of the old CA is stored beside it.
func TestRestoreBesideABoot(t *testing.T) {
	store, other := mem.New(mem.Config{}), mem.New(mem.Config{})
	trust := bootstrap(t, store, 1)
	bootstrap(t, other, 7)
	theirs := contents(t, other)[caKey]
	remove(t, store, caCert, caKey, caBundle, nonceKey)
	first := true
	beside := hooked{store, func(key string) {
		if key != caKey || !first {
			return
		}
		first = false
		if _, err := store.Put(t.Context(), caKey, []byte(theirs), object.IfAbsent()); err != nil {
			t.Error(err)
		}
	}}
	_, got, err := secrets.Restore(t.Context(), config(t, beside, 2), trust)
	if !errors.Is(err, secrets.ErrBrokenTrust) || len(got) > 0 {
		t.Errorf("stored %q, %v", got, err)
	}
	bootstrap(t, store, 3) // the one that booted goes on
}

// TestRestoreOfOtherCAs: what was last read decides which other CAs are trusted again, and a CA that
// nothing vouches for is not; then it says that no server can start.
func TestRestoreOfOtherCAs(t *testing.T) {
	store := mem.New(mem.Config{})
	trust := bootstrap(t, store, 1)
	other := bootstrap(t, mem.New(mem.Config{}), 9)
	if _, err := secrets.TrustCAs(t.Context(), config(t, store, 2), other.Bundle); err != nil {
		t.Fatal(err)
	}
	known, got, err := secrets.Restore(t.Context(), config(t, store, 3), trust) // as each hour
	if err != nil || len(got) > 0 {
		t.Fatalf("stored %q, %v", got, err)
	}
	before := contents(t, store)
	for _, gone := range [][]string{{caBundle}, {caCert}, {caBundle, caCert}} {
		remove(t, store, gone...)
		_, got, err := secrets.Restore(t.Context(), config(t, store, 4), known)
		if err != nil || len(got) != len(gone) || !strings.HasSuffix(got[0], " with 2 CAs") {
			t.Errorf("without %q: stored %q, %v", gone, got, err)
		}
		if after := contents(t, store); after[caCert] != before[caCert] {
			t.Errorf("without %q: ca.crt differs", gone)
		}
	}
	remove(t, store, caBundle)
	if _, got, err := secrets.Restore(t.Context(), config(t, store, 5), trust); !errors.Is(err, secrets.ErrBrokenTrust) || len(got) != 1 {
		t.Errorf("a CA that nothing vouches for: stored %q, %v", got, err)
	}
	if _, err := secrets.Bootstrap(t.Context(), config(t, store, 6)); !errors.Is(err, secrets.ErrBrokenTrust) {
		t.Errorf("a server starts: %v", err)
	}
	if _, err := secrets.DistrustCA(t.Context(), config(t, store, 7), pki.Fingerprint(other.CA.Certificate())); err == nil {
		t.Error("it was trusted")
	}
}

// TestRestoreOfAnotherNonceKey: a new key for nonces is told, and keeps nothing else from being stored.
func TestRestoreOfAnotherNonceKey(t *testing.T) {
	store := mem.New(mem.Config{})
	trust := bootstrap(t, store, 1)
	remove(t, store, nonceKey)
	bootstrap(t, store, 2)
	remove(t, store, caKey)
	for range 2 {
		var err error
		if trust, _, err = secrets.Restore(t.Context(), config(t, store, 3), trust); !errors.Is(err, secrets.ErrNonceKey) {
			t.Error(err)
		}
		bootstrap(t, store, 4)
	}
}
