// Package secrets stores what only servers and administrators may read, behind one interface,
// and creates the secrets that a cluster's identity is based on.
//
// In object storage a secret is an object at {prefix}{name}: a random 12-byte nonce followed
// by the AES-256-GCM ciphertext (NIST SP 800-38D). The object's key is the associated data, so
// a secret that was copied to another name does not open. The encryption key is never in the
// bucket; it comes from a KeySource. Former keys still open what they sealed. A Backend stores
// secrets elsewhere, already encrypted.
//
// Bootstrap lets any number of servers start on an empty bucket at once and agree on one CA
// and one registration key, without a leader: every write is if-absent, and each server uses
// what was stored, not what it generated.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/object"
)

// Errors of a secret, a key or the cluster's trust. Test with errors.Is; storage errors wrap
// object.ErrUnknown instead and may be retried.
var (
	// ErrNotFound: there is no secret of this name.
	ErrNotFound = errors.New("secret not found")
	// ErrSealed: none of the encryption keys opens it.
	ErrSealed = errors.New("secret does not decrypt")
	// ErrKey: an encryption key is missing, has a wrong length, or is not random enough.
	ErrKey = errors.New("bad encryption key")
	// ErrUnsupported: a provider that is not part of this build.
	ErrUnsupported = errors.New("not supported by this build")
	// ErrNoTrust: the cluster has no CA or registration key yet, and the caller may not create
	// them.
	ErrNoTrust = errors.New("the cluster is not set up yet: start a server first")
	// ErrBrokenTrust: parts of the cluster's trust are missing or do not match. Nothing is
	// created; an administrator must decide.
	ErrBrokenTrust = errors.New("the cluster's CA and keys are missing or do not match")
)

// Secrets stores secrets. CheckName defines valid names. Implementations are safe for
// concurrent use and respect ctx.
type Secrets interface {
	// Get returns the secret's value, which the caller may modify, or ErrNotFound, or
	// ErrSealed.
	Get(ctx context.Context, name string) ([]byte, error)

	// Create stores the value unless the name already has one; created reports which. It
	// resolves a lost response until ctx ends, which should have a deadline. After an error
	// the value may have been stored, or may be later: use Get. At most one of several Creates
	// takes effect.
	Create(ctx context.Context, name string, value []byte) (created bool, err error)

	// Replace stores the value whether or not the name has one. It resolves a lost response
	// until ctx ends. The error is object.ErrConflict if another writer stored a value
	// meanwhile, where the backend can detect that.
	Replace(ctx context.Context, name string, value []byte) error
}

// Providers of secrets. Those of AWS also store keys.
const (
	ProviderObjectStorage  = "object-storage"
	ProviderSecretsManager = "aws-secrets-manager"
	ProviderParameterStore = "aws-parameter-store"
)

// Backend opens secrets in a service that stores and encrypts them. Their names there start
// with prefix, which ends with a slash. random is safe for concurrent use.
type Backend func(ctx context.Context, prefix string, random io.Reader) (Secrets, error)

// Backends are the places for secrets besides object storage, by provider name.
type Backends map[string]Backend

func (b Backends) have() string {
	return strings.Join(append([]string{ProviderObjectStorage}, slices.Sorted(maps.Keys(b))...), " or ")
}

// Config is the configuration of secrets, with what is needed to reach them.
type Config struct {
	Provider string // object-storage, or one of Backends
	Prefix   string // of the objects' keys, or of the secrets' names; ends with a slash
	Key      KeySource
	OldKeys  []KeySource // for decryption only, so they need not be random enough

	Store   object.Store
	Random  io.Reader // for the nonces; safe for concurrent use
	Sources Sources   // of the keys

	Backends Backends
}

// Open reads the encryption keys, once, and returns the provider's secrets. The error names
// the wrong config field.
func Open(ctx context.Context, cfg Config) (Secrets, error) {
	backend, ok := cfg.Backends[cfg.Provider]
	switch {
	case ok:
		return backend(ctx, cfg.Prefix, cfg.Random)
	case cfg.Provider == ProviderObjectStorage:
	case cfg.Provider == ProviderSecretsManager, cfg.Provider == ProviderParameterStore:
		return nil, fmt.Errorf("open secrets: provider %q is %w: want %s", cfg.Provider, ErrUnsupported, cfg.Backends.have())
	default:
		return nil, fmt.Errorf("open secrets: unknown provider %.80q: want %s", cfg.Provider, cfg.Backends.have())
	}
	current, err := LoadKey(ctx, cfg.Key, cfg.Sources)
	if err != nil {
		return nil, fmt.Errorf("open secrets: encryption_key: %w", err)
	}
	old := make([]Key, 0, len(cfg.OldKeys))
	for i, source := range cfg.OldKeys {
		key, err := loadAnyKey(ctx, source, cfg.Sources)
		if err != nil {
			return nil, fmt.Errorf("open secrets: old_encryption_keys[%d]: %w", i, err)
		}
		old = append(old, key)
	}
	return NewSealed(SealedConfig{Store: cfg.Store, Prefix: cfg.Prefix, Key: current, OldKeys: old, Random: cfg.Random})
}
