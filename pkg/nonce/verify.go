package nonce

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Want is what the checking server accepts.
type Want struct {
	Kind      Kind
	ClusterID string
	Shard     string
}

// Verify checks an untrusted token and returns its claims. The error is one of this package's,
// with the values that differ. It reveals nothing of a token before its signature is verified. With
// ErrNotYetValid and ErrExpired the claims are returned too.
//
// It does not spend the nonce.
func Verify(pub ed25519.PublicKey, token string, want Want, now time.Time) (Claims, error) {
	claims, err := parse(pub, token)
	if err != nil {
		return Claims{}, err
	}
	if err := claims.check(); err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := claims.match(want); err != nil {
		return Claims{}, err
	}
	return claims, claims.checkTime(now)
}

func parse(pub ed25519.PublicKey, token string) (Claims, error) {
	if len(token) > MaxLength {
		return Claims{}, fmt.Errorf("%w: %d bytes long, want at most %d", ErrMalformed, len(token), MaxLength)
	}
	// Go's base64 skips line breaks even when strict, which would allow several spellings of a
	// nonce.
	if i := strings.IndexFunc(token, notCompact); i >= 0 {
		return Claims{}, fmt.Errorf("%w: byte %d is not a valid JWT character", ErrMalformed, i)
	}
	var w wire
	parsed, err := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithStrictDecoding(),
		jwt.WithoutClaimsValidation(), // it would read the clock; Verify validates instead
	).ParseWithClaims(token, &w, func(*jwt.Token) (any, error) { return pub, nil })
	if err != nil {
		return Claims{}, refusal(parsed, err)
	}
	return w.claims(), nil
}

// refusal maps the library's errors to this package's.
func refusal(parsed *jwt.Token, err error) error {
	if errors.Is(err, jwt.ErrTokenMalformed) || parsed == nil {
		return fmt.Errorf("%w: want three base64url parts with JSON in the first two", ErrMalformed)
	}
	if algorithm := parsed.Header["alg"]; algorithm != jwt.SigningMethodEdDSA.Alg() {
		return fmt.Errorf("%w: algorithm %.40q", ErrAlgorithm, fmt.Sprint(algorithm))
	}
	return fmt.Errorf("%w: the key that signed it is not this cluster's registration key", ErrSignature)
}

func notCompact(r rune) bool {
	return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.", r)
}

func (c Claims) match(want Want) error {
	if c.ClusterID != want.ClusterID {
		return fmt.Errorf("%w: it is for %q, this is %q", ErrCluster, c.ClusterID, want.ClusterID)
	}
	if c.Kind != want.Kind {
		return fmt.Errorf("%w: it is for an %s, want one for an %s", ErrKind, c.Kind, want.Kind)
	}
	if c.Shard != want.Shard && c.Shard != "" {
		return fmt.Errorf("%w: it is for %q, this is %q", ErrShard, c.Shard, want.Shard)
	}
	return nil
}

func (c Claims) checkTime(now time.Time) error {
	if now.Before(c.NotBefore.Add(-Leeway)) {
		return fmt.Errorf("%w: valid from %s, the time here is %s", ErrNotYetValid, show(c.NotBefore), show(now))
	}
	if now.Before(c.IssuedAt.Add(-Leeway)) {
		return fmt.Errorf("%w: issued at %s, the time here is %s", ErrNotYetValid, show(c.IssuedAt), show(now))
	}
	if !now.Before(c.ExpiresAt.Add(Leeway)) {
		return fmt.Errorf("%w: valid until %s, the time here is %s", ErrExpired, show(c.ExpiresAt), show(now))
	}
	return nil
}

func show(t time.Time) string { return t.UTC().Format(time.RFC3339) }
