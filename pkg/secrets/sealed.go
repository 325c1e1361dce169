package secrets

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/nstance/nstance/pkg/object"
)

// MaxValue is the maximum length of a secret's value in bytes, the smallest limit among common
// secret stores.
const MaxValue = 64 << 10

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_])?$`)

// CheckName returns an error if s is not a valid secret name.
func CheckName(s string) error {
	if !namePattern.MatchString(s) {
		return fmt.Errorf("%.80q is not a secret's name: want letters, digits, dots, hyphens and underscores, at most 128, "+
			"not starting or ending with a dot or hyphen", s)
	}
	return nil
}

// SealedConfig is the input of NewSealed.
type SealedConfig struct {
	Store   object.Store
	Prefix  string // of the objects' keys; ends with a slash
	Key     Key
	OldKeys []Key     // for decryption only, tried in this order after Key
	Random  io.Reader // for the nonces; safe for concurrent use
}

// Sealed stores encrypted secrets in object storage.
type Sealed struct {
	store  object.Store
	prefix string
	random io.Reader
	keys   []Key
	aeads  []cipher.AEAD // of keys; the first one seals
}

var _ Secrets = (*Sealed)(nil)

// NewSealed checks the prefix and prepares the keys. It does no I/O.
func NewSealed(cfg SealedConfig) (*Sealed, error) {
	if !strings.HasSuffix(cfg.Prefix, "/") || object.CheckKey(cfg.Prefix+"x") != nil {
		return nil, fmt.Errorf("open secrets: prefix %.80q: want an object key prefix that ends with a slash, "+
			"such as cluster/secret/", cfg.Prefix)
	}
	s := &Sealed{store: cfg.Store, prefix: cfg.Prefix, random: cfg.Random, keys: append([]Key{cfg.Key}, cfg.OldKeys...)}
	for _, key := range s.keys {
		if key == (Key{}) {
			return nil, fmt.Errorf("open secrets: %w: a key was not loaded", ErrKey)
		}
		block, err := aes.NewCipher(key.bytes[:])
		if err != nil {
			return nil, fmt.Errorf("open secrets: %w", err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("open secrets: %w", err)
		}
		s.aeads = append(s.aeads, aead)
	}
	return s, nil
}

// Get implements Secrets.
func (s *Sealed) Get(ctx context.Context, name string) ([]byte, error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("get secret: %w", err)
	}
	key := s.prefix + name
	o, err := s.store.Get(ctx, key)
	if errors.Is(err, object.ErrNotFound) {
		return nil, fmt.Errorf("get secret %s: %w", key, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("get secret %s: %w", key, err)
	}
	value, err := s.unseal(key, o.Body)
	if err != nil {
		return nil, fmt.Errorf("get secret %s: %w", key, err)
	}
	return value, nil
}

// Create implements Secrets.
func (s *Sealed) Create(ctx context.Context, name string, value []byte) (bool, error) {
	if err := CheckName(name); err != nil {
		return false, fmt.Errorf("create secret: %w", err)
	}
	key := s.prefix + name
	if len(value) > MaxValue {
		return false, fmt.Errorf("create secret %s: %d bytes, want at most %d", key, len(value), MaxValue)
	}
	body, err := s.seal(key, value)
	if err != nil {
		return false, fmt.Errorf("create secret %s: %w", key, err)
	}
	// The random nonce makes the body unique, as PutConfirmed requires.
	_, err = object.PutConfirmed(ctx, s.store, key, body, object.IfAbsent())
	if errors.Is(err, object.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create secret %s: %w", key, err)
	}
	return true, nil
}

// Replace implements Secrets.
func (s *Sealed) Replace(ctx context.Context, name string, value []byte) error {
	if err := CheckName(name); err != nil {
		return fmt.Errorf("replace secret: %w", err)
	}
	key := s.prefix + name
	if len(value) > MaxValue {
		return fmt.Errorf("replace secret %s: %d bytes, want at most %d", key, len(value), MaxValue)
	}
	pre := object.IfAbsent()
	switch o, err := s.store.Get(ctx, key); {
	case err == nil:
		pre = object.IfMatch(o.ETag)
	case !errors.Is(err, object.ErrNotFound):
		return fmt.Errorf("replace secret %s: %w", key, err)
	}
	body, err := s.seal(key, value)
	if err == nil {
		_, err = object.PutConfirmed(ctx, s.store, key, body, pre)
	}
	if err != nil {
		return fmt.Errorf("replace secret %s: %w", key, err)
	}
	return nil
}

// seal returns the nonce followed by the ciphertext. 96 random bits per value are safe for
// 2^32 values of one key, far more than a cluster has.
func (s *Sealed) seal(key string, value []byte) ([]byte, error) {
	nonce := make([]byte, s.aeads[0].NonceSize(), s.aeads[0].NonceSize()+len(value)+s.aeads[0].Overhead())
	if _, err := io.ReadFull(s.random, nonce); err != nil {
		return nil, fmt.Errorf("read randomness for a nonce: %w", err)
	}
	return s.aeads[0].Seal(nonce, nonce, value, []byte(key)), nil
}

func (s *Sealed) unseal(key string, body []byte) ([]byte, error) {
	for _, aead := range s.aeads {
		if len(body) < aead.NonceSize()+aead.Overhead() {
			return nil, fmt.Errorf("%w: the object of %d bytes is too short for a sealed secret: restore it from a backup", ErrSealed, len(body))
		}
		if value, err := aead.Open(nil, body[:aead.NonceSize()], body[aead.NonceSize():], []byte(key)); err == nil {
			return value, nil
		}
	}
	sources := make([]string, 0, len(s.keys))
	for _, k := range s.keys {
		sources = append(sources, k.source.String())
	}
	return nil, fmt.Errorf("%w with the keys tried (%s): if the encryption key was changed, add the former one to old_encryption_keys; "+
		"if the object was changed or copied from another name, restore it from a backup", ErrSealed, strings.Join(sources, ", "))
}
