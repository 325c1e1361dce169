package admin

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/secrets"
)

// CA is a CA that a cluster trusts.
type CA struct {
	Fingerprint string    `json:"sha256"` // of the certificate, in hexadecimal digits
	Subject     string    `json:"subject"`
	NotAfter    time.Time `json:"not_after"`
	Signs       bool      `json:"signs"` // the cluster signs with its key
}

// CAs returns the CAs the cluster trusts, in the bundle's order.
func (c *Cluster) CAs() (all []CA) {
	for _, cert := range c.trust.Bundle.Certificates() {
		all = append(all, CA{
			Fingerprint: pki.Fingerprint(cert), Subject: cert.Subject.String(), NotAfter: cert.NotAfter.UTC(), Signs: c.trust.CA.Made(cert),
		})
	}
	return all
}

// Bundle returns the CA certificates as PEM.
func (c *Cluster) Bundle() []byte { return c.trust.Bundle.PEM() }

// ParseCAs parses CA certificates.
func ParseCAs(text []byte) (*pki.Bundle, error) { return pki.ParseBundle(text) }

// ParseFingerprint parses a certificate's SHA-256, in hexadecimal digits of either case, with
// or without colons.
func ParseFingerprint(text string) (string, error) {
	plain := strings.ToLower(strings.ReplaceAll(text, ":", ""))
	if b, err := hex.DecodeString(plain); err != nil || len(b) != 32 {
		return "", fmt.Errorf("%.100q is not a fingerprint: want a certificate's SHA-256 in 64 hexadecimal digits, as cluster ca list shows it",
			text)
	}
	return plain, nil
}

// TrustCAs makes the cluster trust more CAs. Servers read them at startup. It may be repeated
// after an error.
func (c *Cluster) TrustCAs(ctx context.Context, more *pki.Bundle) error {
	for _, cert := range more.Certificates() {
		if !c.now().Before(cert.NotAfter) {
			return fmt.Errorf("the CA %.80q (SHA-256 %s) expired at %s: add a valid one; nothing was changed",
				cert.Subject.String(), pki.Fingerprint(cert), cert.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	bundle, err := secrets.TrustCAs(ctx, c.trustConfig(), more)
	if err == nil {
		c.trust.Bundle = bundle
	}
	return err
}

// DistrustCA removes a CA from those the cluster trusts; secrets.ErrNoSuchCA if it is not
// trusted. Like TrustCAs it may be repeated after an error.
func (c *Cluster) DistrustCA(ctx context.Context, fingerprint string) error {
	bundle, err := secrets.DistrustCA(ctx, c.trustConfig(), fingerprint)
	if err == nil {
		c.trust.Bundle = bundle
	}
	return err
}

func (c *Cluster) trustConfig() secrets.BootstrapConfig {
	return secrets.BootstrapConfig{ClusterID: c.trust.ClusterID, Store: c.store, Secrets: c.sealed}
}
