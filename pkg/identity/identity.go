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

// ErrMissing means that the store lacks a part.
var ErrMissing = errors.New("is missing")

// LocalError is trouble of this machine or of the store: asking a server again is
// of no use.
type LocalError struct{ err error }

func (e *LocalError) Error() string { return e.err.Error() }

// Unwrap returns what went wrong.
func (e *LocalError) Unwrap() error { return e.err }

// Config is what an Identity is made from.
type Config struct {
	Store   Store
	Cluster string                 // empty: that of the certificate in the store
	Want    func(pki.Caller) error // says why a certificate is not for this client
	Now     func() time.Time
	Entropy io.Reader // for keys
}

// Identity is a client's key and certificate, and the CAs that it checks servers
// against. What is read from it may be read by several goroutines; Obtain, Renew
// and Keep are for one at a time.
type Identity struct {
	config  Config
	source  *pki.Source
	key     ed25519.PrivateKey // of the first certificate; nil: to be made
	problem error
}

// Open reads an identity. The CAs must be there, and the key must be one if it is
// there; that no certificate can be used is no error but the identity's Problem.
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

// pair is the certificate with its key, which must be for this client. Neither its
// dates nor who signed it are looked at.
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

// Problem is why there is no certificate to use; nil when there is one. It wraps
// ErrMissing when there is none at all.
func (i *Identity) Problem() error { return i.problem }

// Certificate is the present one; nil: there is none.
func (i *Identity) Certificate() *x509.Certificate {
	if pair := i.source.Keypair(); pair != nil {
		return pair.Certificate()
	}
	return nil
}

// Discard forgets the key for which no certificate was had: the next Obtain makes another.
// setAside takes it out of the store; its error comes back as a LocalError, and nothing is
// forgotten.
func (i *Identity) Discard(setAside func() error) error {
	if err := setAside(); err != nil {
		return &LocalError{err}
	}
	i.key = nil
	return nil
}

// ID is the id that the certificate is for; empty without one.
func (i *Identity) ID() string {
	if cert := i.Certificate(); cert != nil {
		return cert.Subject.CommonName // as member has seen to
	}
	return ""
}

// TLS is for dialling a server of a shard at host. It shows the certificate of
// when a connection is made.
func (i *Identity) TLS(shard, host string) *tls.Config {
	endpoint := pki.Endpoint{Cluster: i.config.Cluster, Source: i.source, Now: i.config.Now}
	return endpoint.Client(host, shard)
}

// Verify checks that one of the CAs signed the present certificate, and that it is
// good at a time; the zero time leaves its dates to the server.
func (i *Identity) Verify(at time.Time) error {
	if err := verify(i.Certificate(), i.source.Bundle(), at); err != nil {
		return fmt.Errorf("%s: %w", CertificateName, err)
	}
	return nil
}

func verify(cert *x509.Certificate, bundle *pki.Bundle, at time.Time) error {
	// Its beginning is the server's to judge: a machine just booted may be behind.
	if at.Before(cert.NotBefore) {
		at = cert.NotBefore
	}
	return bundle.Verify(cert, x509.ExtKeyUsageClientAuth, at)
}
