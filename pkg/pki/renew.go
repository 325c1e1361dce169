package pki

import (
	"crypto/x509"
	"time"
)

// RenewAt is when a certificate is to be renewed: at two thirds of its life,
// which leaves a third for what may go wrong. The life counts from when it was
// made, which is Backdate after it became valid.
func RenewAt(cert *x509.Certificate) time.Time {
	made := cert.NotBefore.Add(Backdate)
	return made.Add(Life(cert) / 3 * 2)
}

// Life is how long a certificate was good for when it was made; 0 when that
// moment was past its end.
func Life(cert *x509.Certificate) time.Duration {
	return max(cert.NotAfter.Sub(cert.NotBefore)-Backdate, 0)
}
