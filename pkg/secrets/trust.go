package secrets

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
)

// Where a cluster's trust is kept: the certificate as a plain object, the keys
// as secrets.
const (
	CACertificateObject = "cluster/ca.crt"
	CAKeyName           = "ca.key"
	NonceKeyName        = "registration-nonce.key"
)

// Trust is what a cluster's identity rests on. It never shows its keys when
// formatted or logged.
type Trust struct {
	ClusterID string
	CA        *pki.CA            // signs
	Bundle    *pki.Bundle        // all that is trusted, CA included
	NonceKey  ed25519.PrivateKey // signs registration nonces
}

// Format implements fmt.Formatter for every verb.
func (t Trust) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "trust of cluster "+t.ClusterID) }

// LogValue implements slog.LogValuer.
func (t Trust) LogValue() slog.Value { return slog.StringValue("trust of cluster " + t.ClusterID) }

// BootstrapConfig is what Bootstrap and Load work on.
type BootstrapConfig struct {
	// ClusterID is the cluster that the trust must be of. For Load it may be
	// empty: the cluster is then what the CA certificate says.
	ClusterID string
	Store     object.Store
	Secrets   Secrets
	// Now and Random are for Bootstrap alone: the CA certificate's time, its
	// serial number and the keys.
	Now    func() time.Time
	Random io.Reader
}

// Load reads the trust of a cluster that a server has set up, and writes
// nothing. ErrNoTrust when no server has finished that yet; else its errors are
// those of Bootstrap.
func Load(ctx context.Context, cfg BootstrapConfig) (Trust, error) {
	s, err := cfg.read(ctx)
	if err != nil {
		return Trust{}, fmt.Errorf("load the cluster's trust: %w", err)
	}
	nonceKey, err := cfg.key(ctx, NonceKeyName)
	switch {
	case errors.Is(err, ErrNotFound) || s.key == nil || s.bundle == nil:
		return Trust{}, fmt.Errorf("load the cluster's trust: %w", ErrNoTrust)
	case err != nil:
		return Trust{}, fmt.Errorf("load the cluster's trust: %w", err)
	}
	t, err := cfg.join(s, nonceKey)
	if err != nil {
		return Trust{}, fmt.Errorf("load the cluster's trust: %w", err)
	}
	return t, nil
}

// stored is what there is of a CA; either may be nil.
type stored struct {
	bundle *pki.Bundle
	key    ed25519.PrivateKey
}

// read reads the certificate first and the key second. The key is written first,
// so a certificate seen without its key is not a beginning but a loss, whoever
// else is writing at the time.
func (cfg BootstrapConfig) read(ctx context.Context) (s stored, err error) {
	s.bundle, err = cfg.bundle(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return stored{}, err
	}
	s.key, err = cfg.key(ctx, CAKeyName)
	switch {
	case errors.Is(err, ErrNotFound) && s.bundle != nil:
		return stored{}, fmt.Errorf("%w: %s is there and the secret %s is not: restore the secret from a backup; "+
			"or, to begin with a new CA and register every instance and operator again, delete %s",
			ErrBrokenTrust, CACertificateObject, CAKeyName, CACertificateObject)
	case errors.Is(err, ErrNotFound):
		return stored{}, nil
	case err != nil:
		return stored{}, err
	}
	return s, nil
}

// bundle reads the CA certificates, or returns ErrNotFound.
func (cfg BootstrapConfig) bundle(ctx context.Context) (*pki.Bundle, error) {
	o, err := cfg.Store.Get(ctx, CACertificateObject)
	if errors.Is(err, object.ErrNotFound) {
		return nil, fmt.Errorf("%s: %w", CACertificateObject, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", CACertificateObject, err)
	}
	bundle, err := pki.ParseBundle(o.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w: restore it from a backup", ErrBrokenTrust, CACertificateObject, err)
	}
	return bundle, nil
}

// key reads an Ed25519 key that is a secret, or returns ErrNotFound.
func (cfg BootstrapConfig) key(ctx context.Context, name string) (ed25519.PrivateKey, error) {
	value, err := cfg.Secrets.Get(ctx, name)
	if errors.Is(err, ErrSealed) {
		return nil, fmt.Errorf("%w: %w", ErrBrokenTrust, err)
	}
	if err != nil {
		return nil, err
	}
	key, err := pki.ParsePrivateKey(value)
	if err != nil {
		return nil, fmt.Errorf("%w: secret %s: %w: restore it from a backup", ErrBrokenTrust, name, err)
	}
	return key, nil
}

// join checks that the parts belong together and to the cluster.
func (cfg BootstrapConfig) join(s stored, nonceKey ed25519.PrivateKey) (Trust, error) {
	ca, err := pki.FindCA(s.bundle, s.key)
	if err != nil {
		return Trust{}, fmt.Errorf("%w: %s and the secret %s: %w: restore the one that was changed from a backup",
			ErrBrokenTrust, CACertificateObject, CAKeyName, err)
	}
	if cfg.ClusterID != "" && ca.Cluster() != cfg.ClusterID {
		return Trust{}, fmt.Errorf("%w: the CA in this bucket is of cluster %q, this is %q: check the bucket and cluster.id",
			ErrBrokenTrust, ca.Cluster(), cfg.ClusterID)
	}
	return Trust{ClusterID: ca.Cluster(), CA: ca, Bundle: s.bundle, NonceKey: nonceKey}, nil
}
