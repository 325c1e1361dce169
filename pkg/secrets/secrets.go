// Package secrets keeps what only servers and administrators may read, behind
// one port, and makes the secrets that a cluster's identity rests on.
//
// In object storage a secret is an object at {prefix}{name}: a random 12-byte
// nonce and after it the AES-256-GCM ciphertext (NIST SP 800-38D). The object's
// key is the associated data, so a secret that was copied to another name does
// not open. The encryption key never is in the bucket; it comes from where a
// KeySource says. Former keys still open what they sealed. A Backend keeps secrets
// elsewhere, where they are encrypted already.
//
// Bootstrap lets any number of servers start on an empty bucket at once and
// agree on one CA and one registration key, without a leader: every write is
// if-absent, and what is stored counts, not what was made.
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

// Why a secret, a key or the cluster's trust can't be had. Test with errors.Is;
// failures of the storage wrap object.ErrUnknown instead and are worth a retry.
var (
	// ErrNotFound: there is no secret of this name.
	ErrNotFound = errors.New("secret not found")
	// ErrSealed: none of the encryption keys opens it.
	ErrSealed = errors.New("secret does not decrypt")
	// ErrKey: an encryption key is missing or has a wrong length.
	ErrKey = errors.New("bad encryption key")
	// ErrUnsupported: a provider that this build does not have.
	ErrUnsupported = errors.New("not supported by this build")
	// ErrNoTrust: the cluster has no CA or registration key yet, and the caller
	// may not make them: start a server first.
	ErrNoTrust = errors.New("the cluster is not set up yet: start a server first")
	// ErrBrokenTrust: parts of the cluster's trust are missing or don't belong
	// together. Nothing is made anew; a person has to decide.
	ErrBrokenTrust = errors.New("the cluster's CA and keys are not in order")
)

// Secrets is the port. Names are as CheckName says. Implementations are safe for
// concurrent use and honour ctx.
type Secrets interface {
	// Get returns the secret's value, which is the caller's to change, or
	// ErrNotFound, or ErrSealed.
	Get(ctx context.Context, name string) ([]byte, error)

	// Create stores the value unless the name has one already; created says
	// which. A lost reply is settled within ctx, which should have an end. After
	// an error the value may be there or may still land: Get tells, and of
	// several Creates no more than one ever counts.
	Create(ctx context.Context, name string, value []byte) (created bool, err error)

	// Replace stores the value whether or not the name has one. A lost reply is
	// settled within ctx; object.ErrConflict when somebody else stored one
	// meanwhile, where the keeper can tell.
	Replace(ctx context.Context, name string, value []byte) error
}

// The providers of secrets. Those of AWS keep keys as well.
const (
	ProviderObjectStorage  = "object-storage"
	ProviderSecretsManager = "aws-secrets-manager"
	ProviderParameterStore = "aws-parameter-store"
)

// Backend opens secrets that somebody else keeps, and encrypts. Their names there begin
// with prefix, which ends with a slash. random is safe for concurrent use.
type Backend func(ctx context.Context, prefix string, random io.Reader) (Secrets, error)

// Backends are where secrets can be kept besides object storage, by the provider's name
// in a config.
type Backends map[string]Backend

func (b Backends) have() string {
	return strings.Join(append([]string{ProviderObjectStorage}, slices.Sorted(maps.Keys(b))...), " or ")
}

// Config says where secrets are kept, and gives what is needed to reach them.
type Config struct {
	Provider string // object-storage, or one of Backends
	Prefix   string // of the objects' keys, or of the secrets' names; ends with a slash
	Key      KeySource
	OldKeys  []KeySource // decrypt only

	Store   object.Store
	Random  io.Reader // for the nonces; safe for concurrent use
	Sources Sources   // that the keys are read from

	Backends Backends
}

// Open reads the encryption keys, once, and returns the secrets of the provider. The
// error names the field that is wrong, as the config has it.
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
		key, err := LoadKey(ctx, source, cfg.Sources)
		if err != nil {
			return nil, fmt.Errorf("open secrets: old_encryption_keys[%d]: %w", i, err)
		}
		old = append(old, key)
	}
	return NewSealed(SealedConfig{Store: cfg.Store, Prefix: cfg.Prefix, Key: current, OldKeys: old, Random: cfg.Random})
}
