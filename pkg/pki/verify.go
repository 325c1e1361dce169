package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// verify checks a peer's certificate against the current bundle and time, and returns the
// caller. Only the leaf matters: the CAs sign leaves directly, so other certificates from the
// peer are ignored.
func (e Endpoint) verify(peer []*x509.Certificate, usage x509.ExtKeyUsage) (Caller, error) {
	if len(peer) == 0 {
		return Caller{}, fmt.Errorf("%w: the peer sent none", ErrNoCertificate)
	}
	if err := e.Source.Bundle().Verify(peer[0], usage, e.Now()); err != nil {
		return Caller{}, err
	}
	return ParseCaller(peer[0], e.Cluster)
}

// Verify checks that a CA of the bundle signed a certificate for a use, and that both are
// valid at a time.
func (b *Bundle) Verify(cert *x509.Certificate, usage x509.ExtKeyUsage, at time.Time) error {
	_, err := cert.Verify(x509.VerifyOptions{
		Roots:         b.pool,
		Intermediates: x509.NewCertPool(),
		CurrentTime:   at,
		KeyUsages:     []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return explain(cert, err, at)
	}
	return nil
}

func explain(cert *x509.Certificate, err error, now time.Time) error {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(cert.NotBefore):
		return fmt.Errorf("%w: %s is valid from %s, the time here is %s", ErrNotYetValid, subject(cert), stamp(cert.NotBefore), stamp(now))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: %s was valid until %s, the time here is %s", ErrExpired, subject(cert), stamp(cert.NotAfter), stamp(now))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Errorf("%w: %s was not issued for this side of a connection", ErrWrongPeer, subject(cert))
	default:
		return fmt.Errorf("%w: %s: %w", ErrUntrusted, subject(cert), err)
	}
}

func subject(cert *x509.Certificate) string {
	return fmt.Sprintf("%.120q with serial %s", cert.Subject.String(), SerialHex(cert))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
