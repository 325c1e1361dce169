package pki

import (
	"crypto/x509"
	"time"
)

// RenewAt returns when a certificate should be renewed: at two thirds of its life, which
// leaves a third for retries. Life is counted from its creation, which is Backdate after it
// became valid.
func RenewAt(cert *x509.Certificate) time.Time {
	return MadeAt(cert).Add(Life(cert) / 3 * 2)
}

// MadeAt returns when a certificate was created, by the clock of its issuer; later, if that was behind
// the clock that made the CA.
func MadeAt(cert *x509.Certificate) time.Time { return cert.NotBefore.Add(Backdate) }

// Life returns a certificate's lifetime when it was created; 0 if it had already expired.
func Life(cert *x509.Certificate) time.Duration {
	return max(cert.NotAfter.Sub(cert.NotBefore)-Backdate, 0)
}
