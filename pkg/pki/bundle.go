package pki

import (
	"bytes"
	"crypto/x509"
	"fmt"
)

// Bundle is the set of CA certificates that a cluster trusts, all of them
// equally; more than one while a CA is being replaced. It is immutable.
type Bundle struct {
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// ParseBundle reads one or more PEM certificates, each of which must be a CA's.
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

// NewBundle trusts the given CA certificates.
func NewBundle(certs ...*x509.Certificate) *Bundle {
	b := &Bundle{certs: append([]*x509.Certificate(nil), certs...), pool: x509.NewCertPool()}
	for _, cert := range b.certs {
		b.pool.AddCert(cert)
	}
	return b
}

// PEM is the bundle as text.
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
