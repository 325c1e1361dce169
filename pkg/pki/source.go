package pki

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"
)

// Keypair is a certificate with its private key. It is immutable.
type Keypair struct{ tls tls.Certificate }

// NewKeypair joins a certificate and its key; ErrMismatch when they don't belong
// together.
func NewKeypair(cert *x509.Certificate, key ed25519.PrivateKey) (*Keypair, error) {
	if err := CheckPair(cert, key); err != nil {
		return nil, err
	}
	return &Keypair{tls: tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}}, nil
}

// ParseKeypair is NewKeypair from the two as PEM.
func ParseKeypair(certPEM, keyPEM []byte) (*Keypair, error) {
	cert, err := ParseCertificate(certPEM)
	if err != nil {
		return nil, err
	}
	key, err := ParsePrivateKey(keyPEM)
	if err != nil {
		return nil, err
	}
	return NewKeypair(cert, key)
}

// Certificate is the certificate. It must not be changed.
func (k *Keypair) Certificate() *x509.Certificate { return k.tls.Leaf }

// String keeps the key out of anything that formats a Keypair.
func (k *Keypair) String() string { return "keypair of " + subject(k.tls.Leaf) }

// Source holds what this process shows to its peers and what it trusts, for
// every TLS configuration made from it. Both can be replaced at any time, from
// any goroutine: handshakes that begin later use the new ones, and connections
// that are open go on.
type Source struct {
	bundle  atomic.Pointer[Bundle]
	keypair atomic.Pointer[Keypair]
}

// NewSource starts with a bundle, and with a keypair unless that is nil: a
// client that is not registered yet has none.
func NewSource(bundle *Bundle, keypair *Keypair) *Source {
	s := &Source{}
	s.bundle.Store(bundle)
	s.keypair.Store(keypair)
	return s
}

// SetKeypair replaces the certificate shown to peers.
func (s *Source) SetKeypair(k *Keypair) { s.keypair.Store(k) }

// SetBundle replaces the CAs that are trusted.
func (s *Source) SetBundle(b *Bundle) { s.bundle.Store(b) }

// Keypair is the current one, or nil.
func (s *Source) Keypair() *Keypair { return s.keypair.Load() }

// Bundle is the current one.
func (s *Source) Bundle() *Bundle { return s.bundle.Load() }

func (s *Source) serverCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if k := s.keypair.Load(); k != nil {
		return &k.tls, nil
	}
	return nil, fmt.Errorf("%w: this server has none yet", ErrNoCertificate)
}

// clientCertificate answers with an empty certificate when there is none, which
// is how TLS says so (RFC 8446, section 4.4.2).
func (s *Source) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if k := s.keypair.Load(); k != nil {
		return &k.tls, nil
	}
	return &tls.Certificate{}, nil
}
