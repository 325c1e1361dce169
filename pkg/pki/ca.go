package pki

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"time"
)

const (
	// CAYears is the validity of a new CA certificate in years.
	CAYears = 10
	// Backdate is how long before its creation a certificate becomes valid, so that it can be used
	// at once on a host whose clock is behind the issuer's, and still when the issuer's, which was
	// ahead, is corrected. Object storage accepts 15 minutes.
	Backdate = time.Hour
)

// CA signs the certificates of one cluster. Apart from its counts it is immutable. Safe for
// concurrent use.
type CA struct {
	cert   *x509.Certificate
	key    ed25519.PrivateKey
	issued issued
}

// CAConfig is the input of NewCA.
type CAConfig struct {
	Cluster string
	Key     ed25519.PrivateKey
	Now     time.Time
	Random  io.Reader // for the serial number
}

// NewCA creates a self-signed CA certificate for cfg.Key, whose common name is the cluster and
// which may only sign leaves (path length 0).
func NewCA(cfg CAConfig) (*CA, error) {
	if err := checkName("cluster", cfg.Cluster); err != nil {
		return nil, fmt.Errorf("create CA: %w", err)
	}
	if len(cfg.Key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("create CA: key of %d bytes: want %d", len(cfg.Key), ed25519.PrivateKeySize)
	}
	number, err := newSerial(cfg.Random)
	if err != nil {
		return nil, fmt.Errorf("create CA: %w", err)
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
		return nil, fmt.Errorf("create CA: %w", err)
	}
	return &CA{cert: cert, key: cfg.Key}, nil
}

// FindCA returns the CA of key and its certificate in the bundle; of several, the one that
// expires last. The error is ErrMismatch if there is none.
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

// CheckOwn returns ErrMismatch unless cert is for key's public half and signed with key. The
// public half alone proves nothing, since every copy of the certificate has it.
func CheckOwn(cert *x509.Certificate, key ed25519.PrivateKey) error {
	if err := CheckPair(cert, key); err != nil {
		return err
	}
	if err := cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature); err != nil {
		return fmt.Errorf("%w: the certificate %s is not signed with its own key: %w", ErrMismatch, cert.Subject, err)
	}
	return nil
}

// Made reports whether the certificate is self-signed with the CA's key.
func (ca *CA) Made(cert *x509.Certificate) bool { return CheckOwn(cert, ca.key) == nil }

// Cluster returns the CA's cluster: its certificate's common name.
func (ca *CA) Cluster() string { return ca.cert.Subject.CommonName }

// Certificate returns the CA's own certificate. It must not be modified.
func (ca *CA) Certificate() *x509.Certificate { return ca.cert }

// String returns a text without the key, for formatting.
func (ca *CA) String() string { return "CA of cluster " + ca.Cluster() }

// SerialHex returns a serial number as in logs and the certificate log.
func SerialHex(cert *x509.Certificate) string {
	return fmt.Sprintf("%x", cert.SerialNumber)
}

// newSerial returns a serial number of 16 bytes, 126 bits of them random; always positive (RFC
// 5280, section 4.1.2.2) and of the same length.
func newSerial(random io.Reader) (*big.Int, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return nil, fmt.Errorf("read randomness for a serial number: %w", err)
	}
	b[0] = b[0]&0x3f | 0x40
	return new(big.Int).SetBytes(b[:]), nil
}

// sign signs and parses a certificate; a nil parent means self-signed.
func sign(template, parent *x509.Certificate, pub ed25519.PublicKey, key ed25519.PrivateKey) (*x509.Certificate, error) {
	if parent == nil {
		parent = template
	}
	// Ed25519 signatures use no randomness, and the serial number is set.
	der, err := x509.CreateCertificate(nil, template, parent, pub, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the signed certificate: %w", err)
	}
	return cert, nil
}

// DeriveKey returns a secret of 32 bytes that only a holder of the CA's key can compute. It is
// deterministic; secrets for different purposes are independent. It is HKDF-Expand with
// SHA-256, of one block (RFC 5869, section 2.3), which needs no extract step because the key's
// seed is random.
func (ca *CA) DeriveKey(purpose string) []byte {
	h := hmac.New(sha256.New, ca.key.Seed())
	h.Write([]byte(purpose))
	h.Write([]byte{1})
	return h.Sum(nil)
}
