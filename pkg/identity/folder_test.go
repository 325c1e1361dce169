package identity_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/identity/identitytest"
	"github.com/nstance/nstance/pkg/pki"
)

func TestStores(t *testing.T) {
	t.Run("folder", func(t *testing.T) {
		identitytest.Run(t, func(t *testing.T) func() identity.Store {
			folder := newFolder(t)
			return func() identity.Store { return folder }
		})
	})
	t.Run("memory", func(t *testing.T) {
		identitytest.Run(t, func(*testing.T) func() identity.Store {
			store := &memory{}
			return func() identity.Store { return store }
		})
	})
}

var errCrash = errors.New("crash")

// crash allows some steps and then fails all others.
type crash struct{ left int }

func (c *crash) step(string, string) error {
	if c.left--; c.left < 0 {
		return errCrash
	}
	return nil
}

// TestCrashesInARenewal crashes a renewal after every number of steps: the pair works, and a
// signed key is requested again.
func TestCrashesInARenewal(t *testing.T) {
	for n := 0; ; n++ {
		s := newServer(t)
		folder := holding(t, s.Authority, newFolder(t))
		during := crash{n}
		err := open(t, folder.WithStep(during.step)).Renew(t.Context(), s.ask)
		whole := err == nil
		if local := new(identity.LocalError); !whole && (!errors.As(err, &local) || !errors.Is(err, errCrash)) {
			t.Fatalf("after %d steps: %v", n, err)
		}
		id := open(t, folder)
		promoted := len(s.keys) == 1 && has(t, id, s.keys[0])
		if err := id.Renew(t.Context(), s.ask); err != nil {
			t.Fatalf("after a crash after %d steps: %v", n, err)
		}
		want := 1 // a key that was requested and not stored is requested again
		if promoted {
			want = 2
		}
		if s.distinct() != want {
			t.Errorf("after %d steps: %d keys were asked for, want %d", n, s.distinct(), want)
		}
		checkFiles(t, folder)
		if whole {
			if n < 8 {
				t.Errorf("a renewal has only %d steps", n)
			}
			return
		}
	}
}

// has reports whether an identity's certificate is for a public key.
func has(t *testing.T, id *identity.Identity, publicKey string) bool {
	t.Helper()
	key, err := pki.ParsePublicKey([]byte(publicKey))
	if err != nil {
		t.Fatal(err)
	}
	return key.Equal(id.Certificate().PublicKey)
}

// checkFiles reads the folder like other programs.
func checkFiles(t *testing.T, folder identity.Folder) {
	t.Helper()
	c := identity.Contents{}
	for name, to := range map[string]*[]byte{identity.CertificateName: &c.Certificate, identity.KeyName: &c.Key} {
		text, err := os.ReadFile(folder.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		*to = text
	}
	checkPair(t, c)
	if _, err := os.Lstat(folder.Path(identity.NextName)); err == nil {
		t.Error("a next key is left")
	}
}

// TestCrashesAtFirst crashes the first exchange after every number of steps: the same key is
// requested again, because its nonce may be bound to it.
func TestCrashesAtFirst(t *testing.T) {
	for n := 0; ; n++ {
		s, folder := newServer(t), newFolder(t)
		put(t, folder, identity.CAsName, s.CAs())
		during := crash{n}
		id, err := identity.Open(t.Context(), config(folder.WithStep(during.step)))
		if err != nil || !errors.Is(id.Problem(), identity.ErrMissing) {
			t.Fatalf("%v, %v", err, id.Problem())
		}
		whole := id.Obtain(t.Context(), s.ask) == nil
		again, err := identity.Open(t.Context(), config(folder))
		if err != nil {
			t.Fatalf("after %d steps: %v", n, err)
		}
		if again.Problem() != nil {
			if err := again.Obtain(t.Context(), s.ask); err != nil || again.Problem() != nil {
				t.Fatalf("after %d steps: %v, %v", n, err, again.Problem())
			}
		}
		if s.distinct() != 1 {
			t.Errorf("after %d steps: %d keys were asked for", n, s.distinct())
		}
		checkFiles(t, folder)
		if whole {
			return
		}
	}
}

// TestOneStepFails fails each step of a renewal once: the same process renews at its next
// attempt.
func TestOneStepFails(t *testing.T) {
	for n := 0; ; n++ {
		s := newServer(t)
		folder := holding(t, s.Authority, newFolder(t))
		steps := 0
		id := open(t, folder.WithStep(func(string, string) error {
			if steps++; steps == n+1 {
				return errCrash
			}
			return nil
		}))
		before := id.Certificate()
		failed := id.Renew(t.Context(), s.ask)
		if failed == nil {
			return
		}
		if err := id.Renew(t.Context(), s.ask); err != nil || id.Certificate().Equal(before) {
			t.Fatalf("after step %d failed (%v): %v", n, failed, err)
		}
		checkFiles(t, folder)
	}
}

// TestCrashesOneAfterAnother crashes a renewal after every number of steps, and the next one
// as well: there is always a pair.
func TestCrashesOneAfterAnother(t *testing.T) {
	for n, whole := 0, false; !whole; n++ {
		for m, again := 0, false; !again; m++ {
			s := newServer(t)
			folder := holding(t, s.Authority, newFolder(t))
			first, second := crash{n}, crash{m}
			whole = open(t, folder.WithStep(first.step)).Renew(t.Context(), s.ask) == nil
			again = open(t, folder.WithStep(second.step)).Renew(t.Context(), s.ask) == nil
			if id, err := identity.Open(t.Context(), config(folder)); err != nil || id.Problem() != nil {
				t.Fatalf("after crashes after %d and %d steps: %v, %v", n, m, err, id.Problem())
			}
		}
	}
}

// TestSettle: after FinishPromotion, other programs find a pair in the folder.
func TestSettle(t *testing.T) {
	for n := 0; ; n++ {
		s := newServer(t)
		folder := holding(t, s.Authority, newFolder(t))
		during := crash{n}
		err := open(t, folder.WithStep(during.step)).Renew(t.Context(), s.ask)
		if err := folder.FinishPromotion(); err != nil {
			t.Fatal(err)
		}
		cert, _ := os.ReadFile(folder.Path(identity.CertificateName))
		key, _ := os.ReadFile(folder.Path(identity.KeyName))
		checkPair(t, identity.Contents{Certificate: cert, Key: key})
		if err == nil {
			return
		}
	}
}

func TestCreate(t *testing.T) {
	ca := identitytest.NewAuthority(t)
	made := ca.Contents(t, identitytest.NewKey(t))
	folder := newFolder(t)
	folder.Dir += "/below/it"
	if err := folder.Create(made); err != nil {
		t.Fatal(err)
	}
	open(t, folder)
	for name, mode := range map[string]os.FileMode{identity.KeyName: 0o600, identity.CertificateName: 0o644, identity.CAsName: 0o644} {
		if info, err := os.Stat(folder.Path(name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := folder.Create(made); err == nil || !strings.Contains(err.Error(), "never overwritten") {
		t.Errorf("a second one: %v", err)
	}
	for name, left := range map[string][]byte{identity.KeyName: made.Key, identity.CertificateName: made.Certificate,
		identity.CAsName: identitytest.NewAuthority(t).CAs()} {
		folder := newFolder(t)
		put(t, folder, name, left)
		if err := folder.Create(made); err == nil {
			t.Errorf("beside %s of another: no error", name)
		}
		if entries, _ := os.ReadDir(folder.Dir); len(entries) != 1 {
			t.Errorf("beside %s of another: %d files", name, len(entries))
		}
	}
	folder = newFolder(t)
	put(t, folder, identity.CAsName, made.CAs)
	if err := folder.Create(made); err != nil {
		t.Errorf("beside the same CA: %v", err)
	}
}
