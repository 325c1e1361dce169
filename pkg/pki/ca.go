package pki

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"time"
)

const (
	// CAYears is how long a new CA certificate is valid.
	CAYears = 10
	// Backdate is how long before it was made a certificate becomes valid, so
	// that a host whose clock is a little behind can use it at once.
	Backdate = 5 * time.Minute
)

// CA signs the certificates of one cluster. It is immutable and safe for
// concurrent use.
type CA struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

// CAConfig is what a new CA is made from.
type CAConfig struct {
	Cluster string
	Key     ed25519.PrivateKey
	Now     time.Time
	Random  io.Reader // for the serial number
}

// NewCA makes a self-signed CA certificate for cfg.Key, whose common name is the
// cluster and which may sign leaves only (path length 0).
func NewCA(cfg CAConfig) (*CA, error) {
	if err := checkName("cluster", cfg.Cluster); err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	if len(cfg.Key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("make CA: key of %d bytes: want %d", len(cfg.Key), ed25519.PrivateKeySize)
	}
	number, err := newSerial(cfg.Random)
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	start := cfg.Now.UTC().Truncate(time.Second)
	cert, err := sign(&x509.Certificate{
		SerialNumber:          number,
		Subject:               pkix.Name{CommonName: cfg.Cluster},
		NotBefore:             start.Add(-Backdate),
		NotAfter:              start.AddDate(CAYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, nil, PublicKey(cfg.Key), cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	return &CA{cert: cert, key: cfg.Key}, nil
}

// FindCA finds the certificate of the bundle that belongs to key, the one valid
// longest when there are several, and makes both a CA. ErrMismatch when there
// is none.
func FindCA(bundle *Bundle, key ed25519.PrivateKey) (*CA, error) {
	var found *x509.Certificate
	for _, cert := range bundle.certs {
		if CheckPair(cert, key) == nil && (found == nil || cert.NotAfter.After(found.NotAfter)) {
			found = cert
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: none of the %d certificates in the CA bundle belongs to the CA key (public key SHA-256 %s)",
			ErrMismatch, len(bundle.certs), PublicKeySHA256(PublicKey(key)))
	}
	return &CA{cert: found, key: key}, nil
}

// CheckPair returns ErrMismatch unless cert is for key's public half.
func CheckPair(cert *x509.Certificate, key ed25519.PrivateKey) error {
	if len(key) != ed25519.PrivateKeySize {
		return fmt.Errorf("%w: the key has %d bytes, want %d", ErrMismatch, len(key), ed25519.PrivateKeySize)
	}
	pub, ok := cert.PublicKey.(ed25519.PublicKey)
	if !ok {
		return fmt.Errorf("%w: the certificate %s is for a key of %s, want Ed25519", ErrMismatch, cert.Subject, cert.PublicKeyAlgorithm)
	}
	if !pub.Equal(PublicKey(key)) {
		return fmt.Errorf("%w: the certificate %s is for public key SHA-256 %s, the key's is %s",
			ErrMismatch, cert.Subject, PublicKeySHA256(pub), PublicKeySHA256(PublicKey(key)))
	}
	return nil
}

// Cluster is the cluster that the CA is for: its certificate's common name.
func (ca *CA) Cluster() string { return ca.cert.Subject.CommonName }

// Certificate is the CA's own certificate. It must not be changed.
func (ca *CA) Certificate() *x509.Certificate { return ca.cert }

// String keeps the key out of anything that formats a CA.
func (ca *CA) String() string { return "CA of cluster " + ca.Cluster() }

// SerialHex is a serial number as logs and the certificate log show it.
func SerialHex(cert *x509.Certificate) string {
	return fmt.Sprintf("%x", cert.SerialNumber)
}

// newSerial makes a serial number of 16 bytes, 126 bits of them random; always
// positive (RFC 5280, section 4.1.2.2) and always of one length.
func newSerial(random io.Reader) (*big.Int, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return nil, fmt.Errorf("read randomness for a serial number: %w", err)
	}
	b[0] = b[0]&0x3f | 0x40
	return new(big.Int).SetBytes(b[:]), nil
}

// sign makes and parses a certificate; a nil parent means self-signed.
func sign(template, parent *x509.Certificate, pub ed25519.PublicKey, key ed25519.PrivateKey) (*x509.Certificate, error) {
	if parent == nil {
		parent = template
	}
	// Ed25519 signatures take no randomness, and the serial is set.
	der, err := x509.CreateCertificate(nil, template, parent, pub, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the signed certificate: %w", err)
	}
	return cert, nil
}
