package identity

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

// Issued is a server's response.
type Issued struct {
	Certificate, CAs string // PEM
	Signature        []byte // of CAs, by the CA (pki.CA.SignBundle)
}

// Ask requests a certificate for a public key (PEM) from a server. New connections with the
// identity's TLS use the current certificate.
type Ask func(ctx context.Context, publicKey string) (Issued, error)

// ErrHeld means that another process is renewing the identity.
var ErrHeld = errors.New("another process is renewing the identity")

// Obtain makes one attempt to get the first certificate, or another one if the current one is
// unusable. All attempts use the same key, generated if there is none, because a server may
// already have signed it.
func (i *Identity) Obtain(ctx context.Context, ask Ask) (err error) {
	if i.key == nil {
		if i.key, err = i.stage(ctx); err != nil {
			return err
		}
	}
	return i.exchange(ctx, ask, i.key, nil)
}

// Renew makes one attempt to replace the certificate, for another key, which is reused until
// an attempt succeeds. If another process has renewed it, the result is taken from the store;
// while that process is renewing, the error is ErrHeld. If the store holds another client's
// identity, it is left alone and the error is a LocalError, because its key could not be
// recovered.
func (i *Identity) Renew(ctx context.Context, ask Ask) error {
	if i.Certificate() == nil {
		return fmt.Errorf("%s %w", CertificateName, ErrMissing)
	}
	unlock, held, err := i.config.Store.Lock(ctx)
	if err != nil {
		return &LocalError{err}
	}
	if !held {
		return ErrHeld
	}
	defer unlock()
	stored, err := i.config.Store.Load(ctx)
	if err != nil {
		return &LocalError{err}
	}
	if i.holdsAnother(stored) {
		return &LocalError{errors.New("the store now holds the identity of another client")}
	}
	if i.adopt(stored) && !i.Due() {
		return nil
	}
	key, err := pki.ParsePrivateKey(stored.Next)
	if err != nil || pki.PublicKey(key).Equal(i.Certificate().PublicKey) {
		if key, err = i.stage(ctx); err != nil {
			return err
		}
	}
	return i.exchange(ctx, ask, key, i.Certificate())
}

// holdsAnother reports whether the stored certificate is another client's.
func (i *Identity) holdsAnother(stored Contents) bool {
	cert, err := pki.ParseCertificate(stored.Certificate)
	return err == nil && (len(cert.URIs) != 1 || sameClient(cert, i.Certificate()) != nil)
}

// adopt uses the stored certificate if it is of the same client and differs from this
// process's.
func (i *Identity) adopt(stored Contents) bool {
	bundle, err := pki.ParseBundle(stored.CAs)
	if err != nil {
		return false
	}
	pair, err := i.pair(stored)
	if err != nil || bytes.Equal(pair.Certificate().Raw, i.Certificate().Raw) || sameClient(pair.Certificate(), i.Certificate()) != nil {
		return false
	}
	i.source.SetBundle(bundle)
	i.source.SetKeypair(pair)
	return true
}

// stage generates a key and stores it.
func (i *Identity) stage(ctx context.Context) (ed25519.PrivateKey, error) {
	key, err := pki.GenerateKey(i.config.Entropy)
	if err != nil {
		return nil, &LocalError{fmt.Errorf("generate a private key: %w", err)}
	}
	text, err := pki.EncodePrivateKey(key)
	if err == nil {
		err = i.config.Store.Stage(ctx, text)
	}
	if err != nil {
		return nil, &LocalError{fmt.Errorf("store a private key: %w", err)}
	}
	return key, nil
}

// exchange requests a certificate for a stored key, checks it and stores it. present is the
// certificate that it replaces, or nil.
func (i *Identity) exchange(ctx context.Context, ask Ask, key ed25519.PrivateKey, present *x509.Certificate) error {
	public, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		return err
	}
	issued, err := ask(ctx, string(public))
	if err != nil {
		return err
	}
	bundle, pair, err := i.check(issued, key, present)
	if err != nil {
		return fmt.Errorf("check the certificate from the server: %w", err)
	}
	text, err := pki.EncodePrivateKey(key)
	if err != nil {
		return err
	}
	c := Contents{CAs: bundle.PEM(), Certificate: pki.EncodeCertificate(pair.Certificate()), Key: text}
	if err := i.config.Store.Promote(ctx, c); err != nil {
		return &LocalError{fmt.Errorf("store the certificate: %w", err)}
	}
	i.problem = nil
	i.source.SetBundle(bundle)
	i.source.SetKeypair(pair)
	return nil
}

// check accepts only a certificate for this key and this client that a CA signed which is trusted
// already, and other CAs only with the signature of such a CA: an impostor with a stolen server
// certificate can't hand out a CA of its own, even if it passes on a genuine certificate. Servers
// of a version without signatures bring no CAs.
func (i *Identity) check(issued Issued, key ed25519.PrivateKey, present *x509.Certificate) (*pki.Bundle, *pki.Keypair, error) {
	bundle, err := pki.ParseBundle([]byte(issued.CAs))
	if err != nil {
		return nil, nil, err
	}
	cert, err := pki.ParseCertificate([]byte(issued.Certificate))
	if err != nil {
		return nil, nil, err
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		return nil, nil, err
	}
	if err := i.member(cert); err != nil {
		return nil, nil, err
	}
	at := i.config.Now()
	if present != nil {
		if err := sameClient(cert, present); err != nil {
			return nil, nil, err
		}
		at = time.Time{} // the local clock may be wrong, and be the reason for the renewal
	}
	trusted := i.source.Bundle()
	if err := verify(cert, trusted, at); err != nil {
		return nil, nil, fmt.Errorf("by the CAs trusted so far: %w", err)
	}
	if err := verify(cert, bundle, at); err != nil {
		return nil, nil, fmt.Errorf("by the CAs of the answer: %w", err)
	}
	if !trusted.Vouches([]byte(issued.CAs), issued.Signature) {
		bundle = trusted
	}
	return bundle, pair, nil
}

// sameClient compares SPIFFE IDs; every client certificate has one.
func sameClient(is, was *x509.Certificate) error {
	if a, b := is.URIs[0].String(), was.URIs[0].String(); a != b {
		return fmt.Errorf("it is for %.120q, want %q", a, b)
	}
	return nil
}
