package pki

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
)

// GenerateKey generates an Ed25519 key (RFC 8032) from the next 32 bytes of random. It fails
// only if random does.
func GenerateKey(random io.Reader) (ed25519.PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return nil, fmt.Errorf("read randomness for a key: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// PublicKeySHA256 returns the lowercase hex SHA-256 of the key's PKIX DER, which identifies
// the key a nonce is bound to. The key must have Ed25519's length.
func PublicKeySHA256(pub ed25519.PublicKey) string {
	// The DER of an Ed25519 SubjectPublicKeyInfo (RFC 8410, section 4) is this constant
	// followed by the key.
	prefix := []byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}
	sum := sha256.Sum256(append(prefix, pub...))
	return hex.EncodeToString(sum[:])
}

// PublicKey returns the public half of key.
func PublicKey(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(append([]byte(nil), key[ed25519.SeedSize:]...))
}
