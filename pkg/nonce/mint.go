package nonce

import (
	"crypto/ed25519"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MaxLength is the maximum length of a token that is created or accepted, in bytes.
const MaxLength = 2048

// Mint signs the claims. Times are truncated to whole seconds. The result is deterministic.
func Mint(key ed25519.PrivateKey, c Claims) (string, error) {
	if len(key) != ed25519.PrivateKeySize {
		return "", fmt.Errorf("mint nonce: key of %d bytes, want an Ed25519 key of %d", len(key), ed25519.PrivateKeySize)
	}
	if err := c.check(); err != nil {
		return "", fmt.Errorf("mint nonce: %w", err)
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, toWire(c)).SignedString(key)
	if err != nil {
		return "", fmt.Errorf("mint nonce: %w", err)
	}
	if len(token) > MaxLength {
		return "", fmt.Errorf("mint nonce: %d bytes long, want at most %d", len(token), MaxLength)
	}
	return token, nil
}

// wire is the JSON of the claims. Numeric dates are whole seconds: the RFC allows fractions,
// but Mint never writes them.
type wire struct {
	Kind       Kind   `json:"kind"`
	Subject    string `json:"sub"`
	ClusterID  string `json:"cluster_id"`
	Tenant     string `json:"tenant"`
	Shard      string `json:"shard,omitempty"`
	ConfigHash string `json:"config_hash,omitempty"`
	ID         string `json:"jti"`
	IssuedAt   int64  `json:"iat"`
	NotBefore  int64  `json:"nbf"`
	ExpiresAt  int64  `json:"exp"`
}

func toWire(c Claims) *wire {
	return &wire{
		Kind: c.Kind, Subject: c.Subject, ClusterID: c.ClusterID, Tenant: c.Tenant, Shard: c.Shard,
		ConfigHash: c.ConfigHash, ID: c.ID,
		IssuedAt: c.IssuedAt.Unix(), NotBefore: c.NotBefore.Unix(), ExpiresAt: c.ExpiresAt.Unix(),
	}
}

func (w *wire) claims() Claims {
	return Claims{
		Kind: w.Kind, Subject: w.Subject, ClusterID: w.ClusterID, Tenant: w.Tenant, Shard: w.Shard,
		ConfigHash: w.ConfigHash, ID: w.ID,
		IssuedAt: stamp(w.IssuedAt), NotBefore: stamp(w.NotBefore), ExpiresAt: stamp(w.ExpiresAt),
	}
}

func stamp(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// The methods below make wire a jwt.Claims. The library's own validation is not used, because
// it reads the clock and blurs the reasons; Verify does it.

func date(seconds int64) (*jwt.NumericDate, error) { return jwt.NewNumericDate(stamp(seconds)), nil }

// GetExpirationTime implements jwt.Claims.
func (w *wire) GetExpirationTime() (*jwt.NumericDate, error) { return date(w.ExpiresAt) }

// GetIssuedAt implements jwt.Claims.
func (w *wire) GetIssuedAt() (*jwt.NumericDate, error) { return date(w.IssuedAt) }

// GetNotBefore implements jwt.Claims.
func (w *wire) GetNotBefore() (*jwt.NumericDate, error) { return date(w.NotBefore) }

// GetIssuer implements jwt.Claims.
func (w *wire) GetIssuer() (string, error) { return "", nil }

// GetSubject implements jwt.Claims.
func (w *wire) GetSubject() (string, error) { return w.Subject, nil }

// GetAudience implements jwt.Claims.
func (w *wire) GetAudience() (jwt.ClaimStrings, error) { return nil, nil }
