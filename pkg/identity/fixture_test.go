package identity_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/identity/identitytest"
	"github.com/nstance/nstance/pkg/pki"
)

// memory is a store without files, like a Kubernetes Secret.
type memory struct {
	mu sync.Mutex
	identity.Contents
	locked bool
}

var _ identity.Store = (*memory)(nil)

func (m *memory) Load(context.Context) (identity.Contents, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Contents, nil
}

func (m *memory) Stage(_ context.Context, key []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Key == nil {
		m.Key = key
	} else {
		m.Next = key
	}
	return nil
}

func (m *memory) Promote(_ context.Context, c identity.Contents) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if next := m.Next; !bytes.Equal(next, c.Key) {
		c.Next = next
	}
	m.Contents = c
	return nil
}

func (m *memory) Lock(context.Context) (func(), bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := !m.locked
	m.locked = true
	return func() { m.mu.Lock(); defer m.mu.Unlock(); m.locked = false }, held, nil
}

func newFolder(t *testing.T) identity.Folder {
	t.Helper()
	return identity.Folder{Files: identity.Files{Dir: t.TempDir(), Mode: 0o644}, Shared: true}
}

func config(s identity.Store) identity.Config {
	return identity.Config{Store: s, Cluster: "example", Now: time.Now, Entropy: rand.Reader, Want: func(c pki.Caller) error {
		if c.Role != pki.RoleOperator || c.ID != identitytest.OperatorID {
			return fmt.Errorf("it is for %s %s", c.Role, c.ID)
		}
		return nil
	}}
}

// open opens an identity that must be usable.
func open(t *testing.T, s identity.Store) *identity.Identity {
	t.Helper()
	id, err := identity.Open(t.Context(), config(s))
	if err == nil {
		err = id.Problem()
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// holding puts a pair into a store.
func holding[S identity.Store](t *testing.T, ca identitytest.Authority, s S) S {
	t.Helper()
	c := ca.Contents(t, identitytest.NewKey(t))
	if err := errors.Join(s.Stage(t.Context(), c.Key), s.Promote(t.Context(), c)); err != nil {
		t.Fatal(err)
	}
	return s
}

// server issues certificates, and records the requested keys.
type server struct {
	identitytest.Authority
	keys  []string
	spoil func(publicKey string, i *identity.Issued) error // nil: responses are unchanged
}

func newServer(t *testing.T) *server {
	t.Helper()
	return &server{Authority: identitytest.NewAuthority(t)}
}

func (s *server) ask(ctx context.Context, publicKey string) (identity.Issued, error) {
	s.keys = append(s.keys, publicKey)
	issued, err := s.Issue(ctx, publicKey)
	if err == nil && s.spoil != nil {
		err = s.spoil(publicKey, &issued)
	}
	return issued, err
}

// distinct returns the number of different keys.
func (s *server) distinct() int { return len(slices.Compact(slices.Sorted(slices.Values(s.keys)))) }
