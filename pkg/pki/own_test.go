package pki_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"testing"

	"github.com/nstance/nstance/pkg/pki"
)

// TestDeriveKey: the derived key depends on the CA's key and the purpose only, and equals
// other implementations' result.
func TestDeriveKey(t *testing.T) {
	key := newKey(t, 1)
	made := func(key ed25519.PrivateKey, serial byte) *pki.CA {
		t.Helper()
		ca, err := pki.NewCA(pki.CAConfig{Cluster: cluster, Key: key, Now: epoch, Random: seeded(serial)})
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	one := made(key, 2).DeriveKey("a")
	expanded, err := hkdf.Expand(sha256.New, key.Seed(), "a", sha256.Size)
	if err != nil || !bytes.Equal(one, expanded) || !bytes.Equal(one, made(key, 3).DeriveKey("a")) {
		t.Errorf("%x, want %x each time; %v", one, expanded, err)
	}
	for name, other := range map[string][]byte{
		"another purpose": made(key, 2).DeriveKey("b"), "another key": made(newKey(t, 4), 2).DeriveKey("a"), "the key itself": key.Seed(),
	} {
		if bytes.Equal(one, other) {
			t.Errorf("%s gives the same", name)
		}
	}
}

// TestMade: a CA recognises the certificates that its key signed for itself.
func TestMade(t *testing.T) {
	ca, other := newCA(t, cluster, 1), newCA(t, cluster, 2)
	again, err := pki.NewCA(pki.CAConfig{Cluster: cluster, Key: newKey(t, 1), Now: epoch.AddDate(1, 0, 0), Random: seeded(9)})
	if err != nil {
		t.Fatal(err)
	}
	if !ca.Made(ca.Certificate()) || !ca.Made(again.Certificate()) {
		t.Error("it does not know its own")
	}
	if ca.Made(other.Certificate()) {
		t.Error("it takes another's for its own")
	}
	// A certificate for the same public key, which is no secret, signed with another key.
	issuer := *other.Certificate()
	der, err := x509.CreateCertificate(seeded(3), ca.Certificate(), &issuer, ca.Certificate().PublicKey, newKey(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	forged, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.CheckOwn(forged, newKey(t, 1)); ca.Made(forged) || !errors.Is(err, pki.ErrMismatch) {
		t.Errorf("it takes a forged one for its own: %v", err)
	}
}

func TestJoin(t *testing.T) {
	a, b := newCA(t, cluster, 1).Certificate(), newCA(t, cluster, 2).Certificate()
	one := pki.NewBundle(a)
	both := one.Join(pki.NewBundle(b, a))
	if want := pki.NewBundle(a, b); !bytes.Equal(both.PEM(), want.PEM()) {
		t.Errorf("joined to %s", both.PEM())
	}
	if one.Contains(b) || !both.Contains(b) || len(one.Certificates()) != 1 {
		t.Error("the first bundle was changed, or the joined one lacks a certificate")
	}
	if f := pki.Fingerprint(a); len(f) != 64 || f == pki.Fingerprint(b) {
		t.Errorf("the fingerprint is %s", f)
	}
}
