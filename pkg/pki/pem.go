package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// MaxPEMSize is the maximum size of PEM text that is parsed, in bytes.
const MaxPEMSize = 64 << 10

const (
	certificateBlock = "CERTIFICATE"
	privateKeyBlock  = "PRIVATE KEY"
	publicKeyBlock   = "PUBLIC KEY"
)

// ParseCertificate parses exactly one PEM certificate (RFC 7468).
func ParseCertificate(data []byte) (*x509.Certificate, error) {
	der, err := parseOne(data, certificateBlock)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w: %w", ErrMalformed, err)
	}
	return cert, nil
}

// EncodeCertificate returns the PEM of one certificate.
func EncodeCertificate(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: cert.Raw})
}

// ParsePrivateKey parses exactly one Ed25519 private key in PKCS #8 PEM (RFC 8410). Errors
// never contain the input.
func ParsePrivateKey(data []byte) (ed25519.PrivateKey, error) {
	der, err := parseOne(data, privateKeyBlock)
	if err != nil {
		return nil, fmt.Errorf("parse private key: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("parse private key: %w: not a PKCS #8 private key", ErrMalformed)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("parse private key: %w: want an Ed25519 key, got %s", ErrMalformed, describeKey(parsed))
	}
	return key, nil
}

// EncodePrivateKey returns the PKCS #8 PEM of key.
func EncodePrivateKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: der}), nil
}

// ParsePublicKey parses exactly one Ed25519 public key in PKIX PEM. The input comes from a
// client, so the error names the algorithm that was found instead.
func ParsePublicKey(data []byte) (ed25519.PublicKey, error) {
	der, err := parseOne(data, publicKeyBlock)
	if err != nil {
		return nil, fmt.Errorf("parse public key: %w", err)
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("parse public key: %w: %w", ErrMalformed, err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("parse public key: %w: want an Ed25519 key, got %s", ErrMalformed, describeKey(parsed))
	}
	return key, nil
}

// EncodePublicKey returns the PKIX PEM of key.
func EncodePublicKey(key ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: publicKeyBlock, Bytes: der}), nil
}

// parseOne returns the DER of a text that is exactly one block of the given type.
func parseOne(data []byte, want string) ([]byte, error) {
	blocks, err := parseBlocks(data, want)
	if err != nil {
		return nil, err
	}
	if len(blocks) != 1 {
		return nil, fmt.Errorf("%w: want one %s block, got %d", ErrMalformed, want, len(blocks))
	}
	return blocks[0], nil
}

// parseBlocks returns the DER of every block. Unlike pem.Decode it does not skip invalid text:
// otherwise a stray character could silently drop a certificate from a bundle.
func parseBlocks(data []byte, want string) ([][]byte, error) {
	if len(data) > MaxPEMSize {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrMalformed, len(data), MaxPEMSize)
	}
	var blocks [][]byte
	rest := bytes.TrimSpace(data)
	for len(rest) > 0 {
		block, after := pem.Decode(rest)
		begin := []byte("-----BEGIN ")
		if block == nil || !bytes.HasPrefix(rest, begin) || bytes.Count(rest[:len(rest)-len(after)], begin) != 1 {
			return nil, fmt.Errorf("%w: block %d: want only %s blocks, without other text", ErrMalformed, len(blocks)+1, want)
		}
		if block.Type != want {
			return nil, fmt.Errorf("%w: block %d: want a %s block, got %.40q", ErrMalformed, len(blocks)+1, want, block.Type)
		}
		if len(block.Headers) > 0 {
			return nil, fmt.Errorf("%w: block %d: want no headers", ErrMalformed, len(blocks)+1)
		}
		blocks = append(blocks, block.Bytes)
		rest = bytes.TrimSpace(after)
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("%w: want a %s block, got nothing", ErrMalformed, want)
	}
	return blocks, nil
}

func describeKey(key any) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA of %d bits", k.N.BitLen())
	case *rsa.PrivateKey:
		return fmt.Sprintf("RSA of %d bits", k.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA on " + k.Curve.Params().Name
	case *ecdsa.PrivateKey:
		return "ECDSA on " + k.Curve.Params().Name
	default:
		return fmt.Sprintf("%T", key)
	}
}
