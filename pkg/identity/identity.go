package identity

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

// ErrMissing means that a part is missing from the store.
var ErrMissing = errors.New("is missing")

// LocalError is an error of this machine or of the store: asking a server again does not help.
type LocalError struct{ err error }

func (e *LocalError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *LocalError) Unwrap() error { return e.err }

// Config is the input of Open.
type Config struct {
	Store   Store
	Cluster string                 // empty: taken from the stored certificate
	Want    func(pki.Caller) error // returns an error if a certificate is not for this client
	Now     func() time.Time
	Entropy io.Reader // for keys
}

// Identity is a client's key and certificate, and the CAs that it trusts. Its accessors are
// safe for concurrent use; Obtain, Renew and RunRenewal must not be called concurrently.
type Identity struct {
	config  Config
	source  *pki.Source
	key     ed25519.PrivateKey // of the first certificate; nil: not generated yet
	problem error
}

// Open reads an identity. The CAs must exist, and a key must be valid if it exists. An
// unusable certificate is not an error; Problem returns the reason.
func Open(ctx context.Context, c Config) (*Identity, error) {
	stored, err := c.Store.Load(ctx)
	if err != nil {
		return nil, &LocalError{err}
	}
	if stored.CAs == nil {
		return nil, fmt.Errorf("%s %w", CAsName, ErrMissing)
	}
	bundle, err := pki.ParseBundle(stored.CAs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", CAsName, err)
	}
	i := &Identity{config: c, source: pki.NewSource(bundle, nil)}
	if stored.Key != nil {
		if i.key, err = pki.ParsePrivateKey(stored.Key); err != nil {
			return nil, fmt.Errorf("%s: %w", KeyName, err)
		}
	}
	var pair *pki.Keypair
	if pair, i.problem = i.pair(stored); i.problem == nil {
		i.config.Cluster = cluster(c, pair.Certificate())
		i.source.SetKeypair(pair)
	}
	return i, nil
}

// pair returns the certificate with its key, and checks that it is for this client. It checks
// neither its dates nor its issuer.
func (i *Identity) pair(stored Contents) (*pki.Keypair, error) {
	switch {
	case stored.Certificate == nil:
		return nil, fmt.Errorf("%s %w", CertificateName, ErrMissing)
	case stored.Key == nil:
		return nil, fmt.Errorf("%s %w beside the certificate", KeyName, ErrMissing)
	}
	pair, err := pki.ParseKeypair(stored.Certificate, stored.Key)
	if err == nil {
		err = i.member(pair.Certificate())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", CertificateName, err)
	}
	return pair, nil
}

// member checks that a certificate is for this client.
func (i *Identity) member(cert *x509.Certificate) error {
	caller, err := pki.ParseCaller(cert, cluster(i.config, cert))
	if err != nil {
		return err
	}
	return i.config.Want(caller)
}

func cluster(c Config, cert *x509.Certificate) string {
	if c.Cluster == "" && len(cert.URIs) == 1 {
		return cert.URIs[0].Host
	}
	return c.Cluster
}

// Problem returns why there is no usable certificate, or nil. The error wraps ErrMissing if
// there is no certificate at all.
func (i *Identity) Problem() error { return i.problem }

// Certificate returns the current certificate, or nil.
func (i *Identity) Certificate() *x509.Certificate {
	if pair := i.source.Keypair(); pair != nil {
		return pair.Certificate()
	}
	return nil
}

// Discard drops a key without a certificate: the next Obtain generates another. setAside
// removes it from the store; its error is returned as a LocalError, and then nothing is
// dropped.
func (i *Identity) Discard(setAside func() error) error {
	if err := setAside(); err != nil {
		return &LocalError{err}
	}
	i.key = nil
	return nil
}

// ID returns the ID in the certificate, or an empty string.
func (i *Identity) ID() string {
	if cert := i.Certificate(); cert != nil {
		return cert.Subject.CommonName // checked by member
	}
	return ""
}

// TLS returns the config for dialling a server of a shard at host. New connections use the
// then current certificate.
func (i *Identity) TLS(shard, host string) *tls.Config {
	endpoint := pki.Endpoint{Cluster: i.config.Cluster, Source: i.source, Now: i.config.Now}
	return endpoint.Client(host, shard)
}

// Verify checks that one of the CAs signed the current certificate, and that it is valid at a
// time; the zero time skips the dates.
func (i *Identity) Verify(at time.Time) error {
	if err := verify(i.Certificate(), i.source.Bundle(), at); err != nil {
		return fmt.Errorf("%s: %w", CertificateName, err)
	}
	return nil
}

func verify(cert *x509.Certificate, bundle *pki.Bundle, at time.Time) error {
	// Not before its start, which the server checks: the clock of a machine that just booted
	// may be behind.
	if at.Before(cert.NotBefore) {
		at = cert.NotBefore
	}
	return bundle.Verify(cert, x509.ExtKeyUsageClientAuth, at)
}
