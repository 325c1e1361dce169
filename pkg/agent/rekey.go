package agent

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

// nextKeyFile is the key of a renewal under way. A certificate can't be put in
// place together with its key, so there is one moment at which identity.crt is
// for identity.key.next; every other one finds a pair under the usual names.
const nextKeyFile = "identity.key.next"

// nextKey returns the key to renew with: the one of an attempt whose answer was
// lost, or a new one, which is stored first.
func (id *identity) nextKey(random io.Reader) (ed25519.PrivateKey, error) {
	data, err := id.store.read(nextKeyFile)
	if err != nil {
		return nil, &storeError{fmt.Errorf("read the next private key: %w", err)}
	}
	if key, err := pki.ParsePrivateKey(data); err == nil && !key.Equal(id.key) {
		return key, nil
	}
	key, err := pki.GenerateKey(random)
	if err != nil {
		return nil, fmt.Errorf("make the next private key: %w", err)
	}
	text, err := pki.EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := id.store.write(nextKeyFile, text, keyMode, true); err != nil {
		return nil, &storeError{fmt.Errorf("store the next private key: %w", err)}
	}
	return key, nil
}

// replace puts the answer to a renewal in the place of what there is: the CAs,
// the certificate, its key. The CAs are those that the server trusts, which let
// us in with the present certificate, so they fit both.
func (id *identity) replace(certText, chainText string, key ed25519.PrivateKey, instanceID string) error {
	bundle, err := pki.ParseBundle([]byte(chainText))
	if err != nil {
		return fmt.Errorf("read the CA chain in the server's answer: %w", err)
	}
	next := &identity{store: id.store, home: id.home, key: key}
	// Its dates are the server's to judge: the clock here may be what is wrong.
	keypair, err := next.checkCertificate([]byte(certText), bundle, instanceID, time.Time{})
	if err != nil {
		return fmt.Errorf("read the certificate in the server's answer: %w", err)
	}
	if was, is := id.source.Keypair().Certificate().URIs[0], keypair.Certificate().URIs[0]; was.String() != is.String() {
		return fmt.Errorf("read the certificate in the server's answer: it is for %.120q: want one for %q", is, was)
	}
	if err := errors.Join(
		id.store.write(caFile, bundle.PEM(), id.store.mode, true),
		id.store.write(certFile, pki.EncodeCertificate(keypair.Certificate()), id.store.mode, true),
	); err != nil {
		return &storeError{fmt.Errorf("store the renewed certificate: %w", err)}
	}
	if err := id.store.rename(nextKeyFile, keyFile); err != nil {
		return &storeError{fmt.Errorf("store the renewed certificate's key: %w", err)}
	}
	id.key = key
	id.source.SetBundle(bundle)
	id.source.SetKeypair(keypair)
	return nil
}

// settle ends a renewal that was cut short after its certificate was stored. One
// that did not come that far goes on with its key.
func (id *identity) settle() error {
	next, err := id.store.read(nextKeyFile)
	if err != nil {
		return fmt.Errorf("read the next private key: %w", err)
	}
	cert, err := id.store.read(certFile)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	if len(bytes.TrimSpace(next)) == 0 || cert == nil {
		return nil
	}
	if _, err := pki.ParseKeypair(cert, next); err != nil {
		return nil //nolint:nilerr // it is for the other key, or for none
	}
	if err := id.store.rename(nextKeyFile, keyFile); err != nil {
		return fmt.Errorf("store the renewed certificate's key: %w", err)
	}
	return nil
}

// rename puts one file in the place of another, durably.
func (s store) rename(from, to string) error {
	if err := os.Rename(s.path(from), s.path(to)); err != nil {
		return err
	}
	return s.sync()
}
