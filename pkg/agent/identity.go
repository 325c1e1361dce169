package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

// The files of the identity directory.
const (
	caFile     = "ca.crt"
	nonceFile  = "nonce.jwt"
	homeFile   = "server.id"
	keyFile    = "identity.key"
	certFile   = "identity.crt"
	statusFile = "status.json"
)

// keyMode is not for the environment to loosen.
const keyMode = 0o600

// identity is what the identity directory says.
type identity struct {
	store  store
	home   home
	nonce  string    // empty: spent, or never given
	ends   time.Time // when the nonce's life does; zero: not known
	key    ed25519.PrivateKey
	source *pki.Source // without a keypair until the agent is registered
}

// identityConfig is what openIdentity needs.
type identityConfig struct {
	store      store
	instanceID string
	random     io.Reader // for a new key
	now        time.Time
	logger     *slog.Logger
}

// finalError is what neither time nor a restart changes.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// openIdentity reads the directory, and makes and stores the key when there is
// none. A certificate that can't be used is as good as none while there is a
// nonce to get another with, and final when there is not.
func openIdentity(ctx context.Context, c identityConfig) (*identity, error) {
	id := &identity{store: c.store}
	bundle, err := id.readBundle()
	if err != nil {
		return nil, err
	}
	if err := id.readHome(); err != nil {
		return nil, err
	}
	if err := id.settle(); err != nil {
		return nil, err
	}
	if id.key, err = id.readKey(); err != nil {
		return nil, err
	}
	keypair, err := id.readKeypair(bundle, c)
	var stored *storeError
	switch {
	case errors.As(err, &stored):
		return nil, err
	case err != nil && id.nonce == "":
		return nil, &finalError{fmt.Errorf("%w, and there is no %s to register again with", err, id.store.path(nonceFile))}
	case err != nil:
		c.logger.LogAttrs(ctx, slog.LevelWarn, "registering again", slog.Any("reason", err))
	}
	if id.key == nil {
		if err := id.makeKey(c.random); err != nil {
			return nil, err
		}
	}
	id.source = pki.NewSource(bundle, keypair)
	return id, nil
}

func (id *identity) readBundle() (*pki.Bundle, error) {
	data, err := id.store.read(caFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA certificates: %w", err)
	}
	if data == nil {
		return nil, fmt.Errorf("%s is missing: userdata must put the cluster's CA certificates there", id.store.path(caFile))
	}
	bundle, err := pki.ParseBundle(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id.store.path(caFile), err)
	}
	return bundle, nil
}

// readHome reads the nonce, and where the agent belongs from it or, once it is
// spent, from what was kept of it.
func (id *identity) readHome() error {
	nonce, err := id.store.read(nonceFile)
	if err != nil {
		return fmt.Errorf("read the registration nonce: %w", err)
	}
	id.nonce = string(bytes.TrimSpace(nonce))
	if id.nonce != "" {
		if id.home, id.ends, err = readNonce(id.nonce); err != nil {
			return fmt.Errorf("read %s: %w", id.store.path(nonceFile), err)
		}
		return id.keepHome()
	}
	kept, err := id.store.read(homeFile)
	if err != nil {
		return fmt.Errorf("read the server's SPIFFE id: %w", err)
	}
	if kept == nil {
		return fmt.Errorf("%s is missing: userdata must put the registration nonce there", id.store.path(nonceFile))
	}
	if id.home, err = parseHome(string(kept)); err != nil {
		return fmt.Errorf("read %s: %w", id.store.path(homeFile), err)
	}
	return nil
}

func (id *identity) keepHome() error {
	if err := id.store.write(homeFile, []byte(id.home.String()+"\n"), id.store.mode, true); err != nil {
		return fmt.Errorf("keep the server's SPIFFE id: %w", err)
	}
	return nil
}

func (id *identity) readKey() (ed25519.PrivateKey, error) {
	data, err := id.store.read(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the private key: %w", err)
	}
	if data == nil {
		return nil, nil
	}
	key, err := pki.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id.store.path(keyFile), err)
	}
	return key, nil
}

func (id *identity) makeKey(random io.Reader) error {
	key, err := pki.GenerateKey(random)
	if err != nil {
		return fmt.Errorf("make the private key: %w", err)
	}
	text, err := pki.EncodePrivateKey(key)
	if err != nil {
		return err
	}
	if err := id.store.write(keyFile, text, keyMode, true); err != nil {
		return fmt.Errorf("store the private key: %w", err)
	}
	id.key = key
	return nil
}

// readKeypair returns the certificate with its key, or why there is none to use.
func (id *identity) readKeypair(bundle *pki.Bundle, c identityConfig) (*pki.Keypair, error) {
	data, err := id.store.read(certFile)
	switch {
	case err != nil:
		return nil, &storeError{fmt.Errorf("read the certificate: %w", err)}
	case data == nil && id.nonce != "":
		return nil, nil
	case data == nil:
		return nil, fmt.Errorf("%s is missing", id.store.path(certFile))
	case id.key == nil:
		return nil, fmt.Errorf("%s is missing beside the certificate", id.store.path(keyFile))
	}
	now := c.now
	if id.nonce == "" {
		// There is no other certificate to be had, and the clock may be what is
		// wrong: let the server judge.
		now = time.Time{}
	}
	keypair, err := id.checkCertificate(data, bundle, c.instanceID, now)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id.store.path(certFile), err)
	}
	return keypair, nil
}

// checkCertificate accepts only the certificate that this agent, with this key,
// should have.
func (id *identity) checkCertificate(text []byte, bundle *pki.Bundle, instanceID string, now time.Time) (*pki.Keypair, error) {
	cert, err := pki.ParseCertificate(text)
	if err != nil {
		return nil, err
	}
	keypair, err := pki.NewKeypair(cert, id.key)
	if err != nil {
		return nil, err
	}
	caller, err := pki.ParseCaller(cert, id.home.cluster)
	if err != nil {
		return nil, err
	}
	if caller.Role != pki.RoleAgent || caller.ID != instanceID {
		return nil, fmt.Errorf("the certificate is for %s %s: want agent %s", caller.Role, caller.ID, instanceID)
	}
	if err := verify(cert, bundle, now); err != nil {
		return nil, err
	}
	return keypair, nil
}

func verify(cert *x509.Certificate, bundle *pki.Bundle, now time.Time) error {
	roots := x509.NewCertPool()
	for _, ca := range bundle.Certificates() {
		roots.AddCert(ca)
	}
	// Its beginning is the server's to judge: a machine just booted may be behind.
	if now.Before(cert.NotBefore) {
		now = cert.NotBefore
	}
	_, err := cert.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// accept stores what the server answered to a registration: the CAs first,
// because the certificate needs them, and the end of the nonce last, because
// until the certificate is stored it is the only way to one.
func (id *identity) accept(certText, chainText string, instanceID string, now time.Time) error {
	bundle, err := pki.ParseBundle([]byte(chainText))
	if err != nil {
		return fmt.Errorf("read the CA chain in the server's answer: %w", err)
	}
	keypair, err := id.checkCertificate([]byte(certText), bundle, instanceID, now)
	if err != nil {
		return fmt.Errorf("read the certificate in the server's answer: %w", err)
	}
	if err := errors.Join(
		id.store.write(caFile, bundle.PEM(), id.store.mode, true),
		id.store.write(certFile, pki.EncodeCertificate(keypair.Certificate()), id.store.mode, true),
	); err != nil {
		return &storeError{fmt.Errorf("store the certificate: %w", err)}
	}
	id.source.SetBundle(bundle)
	id.source.SetKeypair(keypair)
	return id.spend()
}

// spend forgets the nonce.
func (id *identity) spend() error {
	if err := id.store.remove(nonceFile); err != nil {
		return &storeError{fmt.Errorf("delete the spent registration nonce: %w", err)}
	}
	id.nonce = ""
	return nil
}

// storeError is trouble of this machine: asking the server again is of no use.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }
