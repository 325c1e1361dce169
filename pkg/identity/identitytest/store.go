// Package identitytest tests implementations of identity.Store.
package identitytest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/pki"
)

// Run tests a store. empty returns, for each test, a function that opens the same, initially
// empty store, like several processes.
func Run(t *testing.T, empty func(t *testing.T) (open func() identity.Store)) {
	for name, test := range map[string]func(*testing.T, func() identity.Store){
		"holds nothing at first":      testEmpty,
		"keeps the first key":         testFirst,
		"replaces a pair":             testReplace,
		"replaces a staged key":       testStageAgain,
		"takes a new certificate":     testSameKey,
		"shows pairs while replacing": testConcurrent,
		"locks out others":            testLock,
		"serves an identity":          testIdentity,
	} {
		t.Run(name, func(t *testing.T) { test(t, empty(t)) })
	}
}

// Authority issues certificates of operators.
type Authority struct{ ca *pki.CA }

// NewAuthority returns an Authority with a new CA.
func NewAuthority(t *testing.T) Authority {
	t.Helper()
	ca, err := pki.NewCA(pki.CAConfig{Cluster: "example", Key: NewKey(t), Now: time.Now(), Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	return Authority{ca}
}

// NewKey returns a new private key.
func NewKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// OperatorID is the ID in the certificates.
const OperatorID = "opr01h455vb4pex5vsknk084sn02q"

// CAs returns the CA's certificate.
func (a Authority) CAs() []byte { return pki.EncodeCertificate(a.ca.Certificate()) }

// Sign signs a bundle.
func (a Authority) Sign(cas []byte) []byte { return a.ca.SignBundle(cas) }

// Issue is an identity.Ask that issues a certificate for an hour.
func (a Authority) Issue(_ context.Context, publicKey string) (identity.Issued, error) {
	return a.IssueTo(OperatorID, publicKey)
}

// IssueTo issues a certificate for an hour to an operator.
func (a Authority) IssueTo(id, publicKey string) (identity.Issued, error) {
	key, err := pki.ParsePublicKey([]byte(publicKey))
	if err != nil {
		return identity.Issued{}, err
	}
	cert, err := a.ca.IssueOperator(pki.ClientRequest{Tenant: "default", ID: id, PublicKey: key, Now: time.Now(), TTL: time.Hour}, rand.Reader)
	if err != nil {
		return identity.Issued{}, err
	}
	return identity.Issued{Certificate: string(pki.EncodeCertificate(cert)), CAs: string(a.CAs()), Signature: a.Sign(a.CAs())}, nil
}

// Contents returns a pair with the CA.
func (a Authority) Contents(t *testing.T, key ed25519.PrivateKey) identity.Contents {
	t.Helper()
	public, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		t.Fatal(err)
	}
	issued, err := a.Issue(t.Context(), string(public))
	if err != nil {
		t.Fatal(err)
	}
	return identity.Contents{CAs: []byte(issued.CAs), Certificate: []byte(issued.Certificate), Key: text(t, key)}
}

func text(t *testing.T, key ed25519.PrivateKey) []byte {
	t.Helper()
	pem, err := pki.EncodePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem
}

func load(t *testing.T, s identity.Store) identity.Contents {
	t.Helper()
	c, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func stage(t *testing.T, s identity.Store, key ed25519.PrivateKey) {
	t.Helper()
	if err := s.Stage(t.Context(), text(t, key)); err != nil {
		t.Fatal(err)
	}
}

func promote(t *testing.T, s identity.Store, c identity.Contents) {
	t.Helper()
	if err := s.Promote(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// want compares the contents of a store. Missing parts must be nil, not empty.
func want(t *testing.T, s identity.Store, want identity.Contents) {
	t.Helper()
	have := load(t, s)
	for _, part := range []struct {
		name       string
		have, want []byte
	}{
		{identity.CAsName, have.CAs, want.CAs}, {identity.CertificateName, have.Certificate, want.Certificate},
		{identity.KeyName, have.Key, want.Key}, {identity.NextName, have.Next, want.Next},
	} {
		if !bytes.Equal(part.have, part.want) || (part.have == nil) != (part.want == nil) {
			t.Errorf("%s is\n%swant\n%s", part.name, part.have, part.want)
		}
	}
}

func testEmpty(t *testing.T, open func() identity.Store) { want(t, open(), identity.Contents{}) }

func testFirst(t *testing.T, open func() identity.Store) {
	key := NewKey(t)
	stage(t, open(), key)
	want(t, open(), identity.Contents{Key: text(t, key)})
	first := NewAuthority(t).Contents(t, key)
	promote(t, open(), first)
	want(t, open(), first)
}

func testReplace(t *testing.T, open func() identity.Store) {
	ca, key, next := NewAuthority(t), NewKey(t), NewKey(t)
	stage(t, open(), key)
	first := ca.Contents(t, key)
	promote(t, open(), first)

	stage(t, open(), next)
	staged := first
	staged.Next = text(t, next)
	want(t, open(), staged)

	second := NewAuthority(t).Contents(t, next)
	promote(t, open(), second)
	want(t, open(), second)
}

func testStageAgain(t *testing.T, open func() identity.Store) {
	ca, key, lost, next := NewAuthority(t), NewKey(t), NewKey(t), NewKey(t)
	stage(t, open(), key)
	first := ca.Contents(t, key)
	promote(t, open(), first)
	stage(t, open(), lost)
	stage(t, open(), next)
	first.Next = text(t, next)
	want(t, open(), first)
}

func testSameKey(t *testing.T, open func() identity.Store) {
	key := NewKey(t)
	stage(t, open(), key)
	promote(t, open(), NewAuthority(t).Contents(t, key))
	again := NewAuthority(t).Contents(t, key)
	promote(t, open(), again)
	want(t, open(), again)
}

func testConcurrent(t *testing.T, open func() identity.Store) {
	ca, key := NewAuthority(t), NewKey(t)
	stage(t, open(), key)
	promote(t, open(), ca.Contents(t, key))
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for s := open(); ; {
				select {
				case <-done:
					return
				default:
				}
				c, err := s.Load(t.Context())
				if err == nil {
					_, err = pki.ParseKeypair(c.Certificate, c.Key)
				}
				if err != nil {
					t.Errorf("while a pair is replaced: %v", err)
				}
			}
		})
	}
	for range 10 {
		next := NewKey(t)
		stage(t, open(), next)
		promote(t, open(), ca.Contents(t, next))
	}
	close(done)
	readers.Wait()
}

func testLock(t *testing.T, open func() identity.Store) {
	for range 2 {
		unlock, held, err := open().Lock(t.Context())
		if err != nil || !held {
			t.Fatalf("held %v, %v", held, err)
		}
		if _, held, err := open().Lock(t.Context()); err != nil || held {
			t.Fatalf("held twice: %v, %v", held, err)
		}
		unlock()
	}
}

func testIdentity(t *testing.T, open func() identity.Store) {
	ca := NewAuthority(t)
	key := NewKey(t)
	stage(t, open(), key)
	promote(t, open(), ca.Contents(t, key))
	ours := openIdentity(t, open())
	if err := ours.Renew(t.Context(), ca.Issue); err != nil {
		t.Fatal(err)
	}
	again := openIdentity(t, open())
	if err := again.Problem(); err != nil || !again.Certificate().Equal(ours.Certificate()) {
		t.Errorf("another certificate than was renewed, %v", err)
	}
}

func openIdentity(t *testing.T, s identity.Store) *identity.Identity {
	t.Helper()
	id, err := identity.Open(t.Context(), identity.Config{
		Store: s, Now: time.Now, Entropy: rand.Reader, Want: func(pki.Caller) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
