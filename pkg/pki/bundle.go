package pki

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
)

// Bundle is the set of CA certificates that a cluster trusts equally; more than one while a CA
// is being replaced. Immutable.
type Bundle struct {
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// ParseBundle parses one or more PEM certificates, each of a CA.
func ParseBundle(data []byte) (*Bundle, error) {
	blocks, err := parseBlocks(data, certificateBlock)
	if err != nil {
		return nil, fmt.Errorf("parse CA bundle: %w", err)
	}
	certs := make([]*x509.Certificate, 0, len(blocks))
	for i, der := range blocks {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("parse CA bundle: %w: certificate %d: %w", ErrMalformed, i+1, err)
		}
		if !cert.BasicConstraintsValid || !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0 {
			return nil, fmt.Errorf("parse CA bundle: %w: certificate %d (%s) is not a CA certificate", ErrMalformed, i+1, cert.Subject)
		}
		certs = append(certs, cert)
	}
	return NewBundle(certs...), nil
}

// NewBundle returns a bundle of the given CA certificates.
func NewBundle(certs ...*x509.Certificate) *Bundle {
	b := &Bundle{certs: append([]*x509.Certificate(nil), certs...), pool: x509.NewCertPool()}
	for _, cert := range b.certs {
		b.pool.AddCert(cert)
	}
	return b
}

// PEM returns the bundle as PEM.
func (b *Bundle) PEM() []byte {
	var out bytes.Buffer
	for _, cert := range b.certs {
		out.Write(EncodeCertificate(cert))
	}
	return out.Bytes()
}

// Certificates returns the CA certificates in the bundle's order.
func (b *Bundle) Certificates() []*x509.Certificate {
	return append([]*x509.Certificate(nil), b.certs...)
}

// Contains reports whether the certificate itself, and not only its key, is in the bundle.
func (b *Bundle) Contains(cert *x509.Certificate) bool {
	return slices.ContainsFunc(b.certs, cert.Equal)
}

// Join returns a bundle of b's certificates followed by those of other that b lacks.
func (b *Bundle) Join(other *Bundle) *Bundle {
	certs := b.Certificates()
	for _, cert := range other.certs {
		if !b.Contains(cert) {
			certs = append(certs, cert)
		}
	}
	return NewBundle(certs...)
}

// signedBundle is what a CA signs for a bundle. No certificate begins like that, so a signature of
// one can't be mistaken for the other.
func signedBundle(pem []byte) []byte { return append([]byte("nstance CA bundle v1\n"), pem...) }

// SignBundle signs a bundle, PEM: what trusts the CA may trust the bundle's CAs as well.
func (ca *CA) SignBundle(pem []byte) []byte { return ed25519.Sign(ca.key, signedBundle(pem)) }

// Vouches reports whether one of b's CAs has signed a bundle (SignBundle).
func (b *Bundle) Vouches(pem, signature []byte) bool {
	return slices.ContainsFunc(b.certs, func(cert *x509.Certificate) bool {
		key, ok := cert.PublicKey.(ed25519.PublicKey)
		return ok && ed25519.Verify(key, signedBundle(pem), signature)
	})
}

// Fingerprint identifies a certificate: the hex SHA-256 of its DER, as printed by openssl x509
// -fingerprint -sha256 but without colons and in lower case.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}
