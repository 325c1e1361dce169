package pki

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"
)

// Keypair is a certificate with its private key. Immutable.
type Keypair struct{ tls tls.Certificate }

// NewKeypair joins a certificate and its key. The error is ErrMismatch if they do not belong
// together.
func NewKeypair(cert *x509.Certificate, key ed25519.PrivateKey) (*Keypair, error) {
	if err := CheckPair(cert, key); err != nil {
		return nil, err
	}
	return &Keypair{tls: tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}}, nil
}

// ParseKeypair is NewKeypair for PEM.
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

// Certificate returns the certificate. It must not be modified.
func (k *Keypair) Certificate() *x509.Certificate { return k.tls.Leaf }

// String returns a text without the key, for formatting.
func (k *Keypair) String() string { return "keypair of " + subject(k.tls.Leaf) }

// Source holds this process's certificate and its trusted CAs, for every TLS configuration
// made from it. Both can be replaced at any time, from any goroutine: later handshakes use the
// new ones, and open connections are not affected.
type Source struct {
	bundle  atomic.Pointer[Bundle]
	keypair atomic.Pointer[Keypair]
}

// NewSource returns a source with a bundle and a keypair, which is nil for a client that is
// not registered yet.
func NewSource(bundle *Bundle, keypair *Keypair) *Source {
	s := &Source{}
	s.bundle.Store(bundle)
	s.keypair.Store(keypair)
	return s
}

// SetKeypair replaces this process's certificate.
func (s *Source) SetKeypair(k *Keypair) { s.keypair.Store(k) }

// SetBundle replaces the trusted CAs.
func (s *Source) SetBundle(b *Bundle) { s.bundle.Store(b) }

// Keypair returns the current keypair, or nil.
func (s *Source) Keypair() *Keypair { return s.keypair.Load() }

// Bundle returns the current bundle.
func (s *Source) Bundle() *Bundle { return s.bundle.Load() }

func (s *Source) serverCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if k := s.keypair.Load(); k != nil {
		return &k.tls, nil
	}
	return nil, fmt.Errorf("%w: this server has none yet", ErrNoCertificate)
}

// clientCertificate returns an empty certificate if there is none, which is how TLS expresses
// that (RFC 8446, section 4.4.2).
func (s *Source) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if k := s.keypair.Load(); k != nil {
		return &k.tls, nil
	}
	return &tls.Certificate{}, nil
}
