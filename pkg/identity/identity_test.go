package identity_test

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/identity/identitytest"
	"github.com/nstance/nstance/pkg/pki"
)

func put(t *testing.T, folder identity.Folder, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(folder.Path(name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustLoad(t *testing.T, s identity.Store) identity.Contents {
	t.Helper()
	c, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func checkPair(t *testing.T, c identity.Contents) {
	t.Helper()
	if _, err := pki.ParseKeypair(c.Certificate, c.Key); err != nil {
		t.Error(err)
	}
}

// TestOpenRefuses: errors that no certificate can fix.
func TestOpenRefuses(t *testing.T) {
	ca := identitytest.NewAuthority(t)
	for name, c := range map[string]struct {
		spoil func(*identity.Contents)
		want  string
	}{
		"no CA":          {func(c *identity.Contents) { c.CAs = nil }, "ca.crt is missing"},
		"a garbled CA":   {func(c *identity.Contents) { c.CAs = []byte("x") }, "ca.crt: "},
		"a garbled key":  {func(c *identity.Contents) { c.Key = []byte("x") }, "identity.key: "},
		"no key at all ": {func(c *identity.Contents) { c.Key = []byte{} }, "identity.key: "},
	} {
		store := holding(t, ca, &memory{})
		c.spoil(&store.Contents)
		if _, err := identity.Open(t.Context(), config(store)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestProblem: without a usable certificate, Open returns an identity that can obtain one.
func TestProblem(t *testing.T) {
	ca := identitytest.NewAuthority(t)
	for name, c := range map[string]struct {
		spoil   func(*testing.T, *identity.Contents)
		want    string
		missing bool
	}{
		"no certificate": {func(_ *testing.T, c *identity.Contents) { c.Certificate = nil }, "identity.crt is missing", true},
		"no key":         {func(_ *testing.T, c *identity.Contents) { c.Key = nil }, "identity.key is missing", true},
		"garbled":        {func(_ *testing.T, c *identity.Contents) { c.Certificate = []byte("x") }, "identity.crt: ", false},
		"of another key": {func(t *testing.T, c *identity.Contents) {
			c.Certificate = ca.Contents(t, identitytest.NewKey(t)).Certificate
		}, "identity.crt: certificate and key do not match", false},
	} {
		t.Run(name, func(t *testing.T) {
			store := holding(t, ca, &memory{})
			c.spoil(t, &store.Contents)
			id, err := identity.Open(t.Context(), config(store))
			if err != nil {
				t.Fatal(err)
			}
			if err := id.Problem(); err == nil || !strings.HasPrefix(err.Error(), c.want) || errors.Is(err, identity.ErrMissing) != c.missing {
				t.Errorf("%v, want %q", err, c.want)
			}
			if id.Certificate() != nil || id.ID() != "" {
				t.Error("it has a certificate")
			}
			if err := id.Renew(t.Context(), ca.Issue); !errors.Is(err, identity.ErrMissing) {
				t.Errorf("renewed: %v", err)
			}
			if err := id.Obtain(t.Context(), ca.Issue); err != nil || id.Problem() != nil || id.ID() != identitytest.OperatorID {
				t.Errorf("not to be had again: %v, %v", err, id.Problem())
			}
			checkPair(t, mustLoad(t, store))
		})
	}
}

// TestNotWanted: another client's certificate is not usable.
func TestNotWanted(t *testing.T) {
	store := holding(t, identitytest.NewAuthority(t), &memory{})
	c := config(store)
	c.Want = func(pki.Caller) error { return errors.New("not ours") }
	id, err := identity.Open(t.Context(), c)
	if err != nil || id.Problem() == nil || !strings.Contains(id.Problem().Error(), "not ours") {
		t.Errorf("%v, %v", err, id.Problem())
	}
	c = config(store)
	c.Cluster = "other"
	if id, err = identity.Open(t.Context(), c); err != nil || !errors.Is(id.Problem(), pki.ErrIdentity) {
		t.Errorf("%v, %v", err, id.Problem())
	}
}

func TestVerify(t *testing.T) {
	ca := identitytest.NewAuthority(t)
	store := holding(t, ca, &memory{})
	id := open(t, store)
	for at, good := range map[time.Time]bool{{}: true, time.Now(): true, time.Now().Add(-time.Hour): true,
		time.Now().Add(2 * time.Hour): false} {
		if err := id.Verify(at); (err == nil) != good {
			t.Errorf("at %s: %v", at, err)
		}
	}
	store.CAs = identitytest.NewAuthority(t).CAs()
	if err := open(t, store).Verify(time.Time{}); err == nil {
		t.Error("signed by no CA that is trusted, and good")
	}
}

// TestAnswersThatAreNotTaken: nothing changes except the next key, which all attempts use.
func TestAnswersThatAreNotTaken(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *server, string, *identity.Issued) error{
		"refused": func(*testing.T, *server, string, *identity.Issued) error { return errors.New("no") },
		"empty":   func(_ *testing.T, _ *server, _ string, i *identity.Issued) error { *i = identity.Issued{}; return nil },
		"garbled": func(_ *testing.T, _ *server, _ string, i *identity.Issued) error { i.Certificate = "x"; return nil },
		"no CA":   func(_ *testing.T, _ *server, _ string, i *identity.Issued) error { i.CAs = ""; return nil },
		"another CA": func(t *testing.T, _ *server, _ string, i *identity.Issued) error {
			i.CAs = string(newServer(t).CAs())
			return nil
		},
		"all of another CA": func(t *testing.T, _ *server, key string, i *identity.Issued) (err error) {
			*i, err = newServer(t).Issue(t.Context(), key)
			return err
		},
		"of another CA, and both": func(t *testing.T, s *server, key string, i *identity.Issued) (err error) {
			*i, err = newServer(t).Issue(t.Context(), key)
			i.CAs += string(s.CAs())
			return err
		},
		"another key": func(t *testing.T, s *server, _ string, i *identity.Issued) error { return s.another(t, i) },
		"another's one": func(_ *testing.T, s *server, key string, i *identity.Issued) (err error) {
			*i, err = s.IssueTo("opr01h455vb4pex5vsknk084sn02r", key)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			store := holding(t, s.Authority, &memory{})
			before, id := mustLoad(t, store), open(t, store)
			s.spoil = func(publicKey string, i *identity.Issued) error { return spoil(t, s, publicKey, i) }
			for range 3 {
				err := id.Renew(t.Context(), s.ask)
				if local := new(identity.LocalError); err == nil || errors.As(err, &local) {
					t.Errorf("%v", err)
				}
			}
			after := mustLoad(t, store)
			if after.Next == nil || s.distinct() != 1 {
				t.Errorf("asked for %d keys", s.distinct())
			}
			if after.Next = nil; !reflect.DeepEqual(before, after) {
				t.Error("the store changed")
			}
			s.spoil = nil
			if err := id.Renew(t.Context(), s.ask); err != nil || s.distinct() != 1 {
				t.Errorf("then %v, for %d keys", err, s.distinct())
			}
		})
	}
}

// another issues a certificate for a key that was not requested.
func (s *server) another(t *testing.T, i *identity.Issued) error {
	t.Helper()
	public, err := pki.EncodePublicKey(pki.PublicKey(identitytest.NewKey(t)))
	if err == nil {
		*i, err = s.Issue(t.Context(), string(public))
	}
	return err
}

// TestAnotherClientMovedIn: a process renews only its own identity. Another client's, put into
// the store meanwhile, is left alone.
func TestAnotherClientMovedIn(t *testing.T) {
	for name, store := range map[string]identity.Store{"folder": newFolder(t), "memory": &memory{}} {
		s := newServer(t)
		id := open(t, holding(t, s.Authority, store))
		key := identitytest.NewKey(t)
		text, err := pki.EncodePrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		public, err := pki.EncodePublicKey(pki.PublicKey(key))
		if err != nil {
			t.Fatal(err)
		}
		issued, err := s.IssueTo("opr01h455vb4pex5vsknk084sn02r", string(public))
		if err != nil {
			t.Fatal(err)
		}
		theirs := identity.Contents{CAs: []byte(issued.CAs), Certificate: []byte(issued.Certificate), Key: text}
		if err := errors.Join(store.Stage(t.Context(), text), store.Promote(t.Context(), theirs)); err != nil {
			t.Fatal(err)
		}
		before := mustLoad(t, store)
		if err := id.Renew(t.Context(), s.ask); !errors.As(err, new(*identity.LocalError)) || len(s.keys) > 0 {
			t.Errorf("%s: %v, asked %d times", name, err, len(s.keys))
		}
		if after := mustLoad(t, store); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: the other's identity was changed", name)
		}
	}
}

// TestRenewedByAnother: a certificate stored by another process is adopted without a request,
// and there is no request while that process is renewing.
func TestRenewedByAnother(t *testing.T) {
	s := newServer(t)
	store := holding(t, s.Authority, &memory{})
	one, other := open(t, store), open(t, store)
	if err := one.Renew(t.Context(), s.ask); err != nil {
		t.Fatal(err)
	}
	if err := other.Renew(t.Context(), s.ask); err != nil || len(s.keys) != 1 || !other.Certificate().Equal(one.Certificate()) {
		t.Errorf("%v, asked %d times", err, len(s.keys))
	}
	unlock, _, _ := store.Lock(t.Context())
	if err := one.Renew(t.Context(), s.ask); !errors.Is(err, identity.ErrHeld) || len(s.keys) != 1 {
		t.Errorf("%v, asked %d times", err, len(s.keys))
	}
	unlock()

	// A certificate of an unknown CA, or without a matching key, is replaced.
	held := one.Certificate()
	for _, spoil := range []func(){
		func() { store.Certificate = []byte("x") },
		func() { store.CAs = nil },
		func() { store.Contents = identity.Contents{} },
	} {
		spoil()
		if err := one.Renew(t.Context(), s.ask); err != nil || one.Certificate().Equal(held) {
			t.Errorf("not renewed: %v", err)
		}
		checkPair(t, mustLoad(t, store))
		held = one.Certificate()
	}
}
