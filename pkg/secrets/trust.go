package secrets

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
)

// The objects and secrets of a cluster's trust: the CA certificates as a plain object, from
// which clients are set up, and again as a secret, since the object proves nothing by itself;
// and the keys as secrets.
const (
	CACertificateObject = "cluster/ca.crt"
	CABundleName        = "ca-bundle"
	CAKeyName           = "ca.key"
	NonceKeyName        = "registration-nonce.key"
)

// Reserved reports whether a secret of this name is part of the cluster's trust, so that only
// servers create it and no instance ever gets it. Case is ignored, because some backends
// ignore it.
func Reserved(name string) bool {
	return slices.ContainsFunc([]string{CABundleName, CAKeyName, NonceKeyName}, func(own string) bool { return strings.EqualFold(own, name) })
}

// Trust is the basis of a cluster's identity. It is formatted and logged without its keys.
type Trust struct {
	ClusterID string
	CA        *pki.CA            // signs
	Bundle    *pki.Bundle        // all trusted CAs, including CA
	NonceKey  ed25519.PrivateKey // signs registration nonces

	key ed25519.PrivateKey // the CA's
}

// Format implements fmt.Formatter for every verb.
func (t Trust) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "trust of cluster "+t.ClusterID) }

// LogValue implements slog.LogValuer.
func (t Trust) LogValue() slog.Value { return slog.StringValue("trust of cluster " + t.ClusterID) }

// BootstrapConfig is the input of Bootstrap and Load.
type BootstrapConfig struct {
	// ClusterID is the expected cluster. For Load it may be empty: the cluster is then taken
	// from the CA certificate.
	ClusterID string
	Store     object.Store
	Secrets   Secrets
	// Now and Random are used by Bootstrap only: for the CA certificate's time, its serial
	// number and the keys.
	Now    func() time.Time
	Random io.Reader
}

// Load reads the trust of a cluster that a server has set up, and writes nothing. The error is
// ErrNoTrust if no server has finished that yet; other errors are those of Bootstrap.
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
	case s.trusted == nil:
		return Trust{}, fmt.Errorf("load the cluster's trust: %w: the secret %s is missing: a server creates it when it starts",
			ErrNoTrust, CABundleName)
	}
	t, err := cfg.join(s, nonceKey)
	if err != nil {
		return Trust{}, fmt.Errorf("load the cluster's trust: %w", err)
	}
	return t, nil
}

// stored is the stored part of a CA; each field may be nil.
type stored struct {
	bundle  *pki.Bundle // the object
	trusted *pki.Bundle // the secret
	key     ed25519.PrivateKey
}

// read reads the key last. It is written first, so certificates without a key mean that the
// key was lost, even while other servers write.
func (cfg BootstrapConfig) read(ctx context.Context) (s stored, err error) {
	if s.bundle, err = cfg.bundle(ctx); err != nil && !errors.Is(err, ErrNotFound) {
		return stored{}, err
	}
	if s.trusted, err = cfg.trusted(ctx); err != nil && !errors.Is(err, ErrNotFound) {
		return stored{}, err
	}
	s.key, err = cfg.key(ctx, CAKeyName)
	switch {
	case errors.Is(err, ErrNotFound) && (s.bundle != nil || s.trusted != nil):
		return stored{}, fmt.Errorf("%w: %s or the secret %s exists, but the secret %s does not: restore the secret from a backup; "+
			"or, to start with a new CA and register every instance and operator again, stop all servers and delete %s and that secret",
			ErrBrokenTrust, CACertificateObject, CABundleName, CAKeyName, CACertificateObject)
	case errors.Is(err, ErrNotFound):
		return stored{}, nil
	case err != nil:
		return stored{}, err
	}
	return s, nil
}

// trusted returns the CA certificates in the secret, or ErrNotFound.
func (cfg BootstrapConfig) trusted(ctx context.Context) (*pki.Bundle, error) {
	value, err := cfg.Secrets.Get(ctx, CABundleName)
	if errors.Is(err, ErrSealed) {
		return nil, fmt.Errorf("%w: %w", ErrBrokenTrust, err)
	}
	if err != nil {
		return nil, err
	}
	bundle, err := pki.ParseBundle(value)
	if err != nil {
		return nil, fmt.Errorf("%w: secret %s: %w: restore it from a backup", ErrBrokenTrust, CABundleName, err)
	}
	return bundle, nil
}

// bundle returns the CA certificates in the object, or ErrNotFound.
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

// key returns an Ed25519 key stored as a secret, or ErrNotFound.
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

// join checks that the parts match each other and the cluster. Trusted are the certificates in
// the object and in the secret: one that was removed only from the object still counts, so
// that no client of that CA is locked out.
func (cfg BootstrapConfig) join(s stored, nonceKey ed25519.PrivateKey) (Trust, error) {
	if _, err := pki.FindCA(s.bundle, s.key); err != nil {
		return Trust{}, fmt.Errorf("%w: %s and the secret %s: %w: restore the one that was changed from a backup",
			ErrBrokenTrust, CACertificateObject, CAKeyName, err)
	}
	if err := s.checkBundle(); err != nil {
		return Trust{}, err
	}
	bundle := s.bundle
	if s.trusted != nil {
		bundle = bundle.Join(s.trusted)
	}
	ca, err := pki.FindCA(bundle, s.key)
	if err != nil {
		return Trust{}, fmt.Errorf("%w: %w", ErrBrokenTrust, err)
	}
	if cfg.ClusterID != "" && ca.Cluster() != cfg.ClusterID {
		return Trust{}, fmt.Errorf("%w: the CA in this bucket belongs to cluster %q, not to %q: check the bucket and cluster.id",
			ErrBrokenTrust, ca.Cluster(), cfg.ClusterID)
	}
	return Trust{ClusterID: ca.Cluster(), CA: ca, Bundle: bundle, NonceKey: nonceKey, key: s.key}, nil
}

// checkBundle returns an error for a certificate of the object that is not verified. A
// certificate signed by the CA's own key is, so it may be created again at any time; any other
// must be in the secret.
func (s stored) checkBundle() error {
	for i, cert := range s.bundle.Certificates() {
		if pki.CheckOwn(cert, s.key) == nil || s.trusted != nil && s.trusted.Contains(cert) {
			continue
		}
		return fmt.Errorf("%w: %s: certificate %d (%.80q, SHA-256 %s) is not a CA of this cluster: "+
			"it is not signed with the CA's key and not in the secret %s: remove it from the object; "+
			"to trust it, add it with nstance-admin cluster ca add",
			ErrBrokenTrust, CACertificateObject, i+1, cert.Subject.String(), pki.Fingerprint(cert), CABundleName)
	}
	return nil
}
