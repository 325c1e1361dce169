package secrets

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/pki"
)

// Bootstrap returns the cluster's trust and creates what is missing, in this order: the CA's
// key, the CA's certificate for the stored key, the secret with the trusted certificates, the
// key for registration nonces. Each is one if-absent write that is then read back, so racing
// servers agree on what was stored first, and the next server completes what a failed one
// left.
//
// It never replaces anything: a certificate without its key, a pair that does not match, an
// unverifiable certificate, a CA of another cluster or a key that can't be decrypted is
// ErrBrokenTrust, with what to do. Storage errors wrap object.ErrUnknown; the whole call may
// be repeated. ctx should have a deadline.
func Bootstrap(ctx context.Context, cfg BootstrapConfig) (Trust, error) {
	t, err := cfg.bootstrap(ctx)
	if err != nil {
		return Trust{}, fmt.Errorf("set up the cluster's trust: %w", err)
	}
	return t, nil
}

func (cfg BootstrapConfig) bootstrap(ctx context.Context) (Trust, error) {
	if cfg.ClusterID == "" {
		return Trust{}, errors.New("no cluster id given")
	}
	s, err := cfg.read(ctx)
	if err != nil {
		return Trust{}, err
	}
	if s.key == nil {
		if s.key, err = cfg.makeKey(ctx, CAKeyName); err != nil {
			return Trust{}, err
		}
	}
	if s.bundle == nil {
		if s.bundle, err = cfg.makeBundle(ctx, s); err != nil {
			return Trust{}, err
		}
	}
	// Check before writing more: nothing is written to a bucket of another cluster, or to one
	// that is inconsistent.
	t, err := cfg.join(s, nil)
	if err != nil {
		return Trust{}, err
	}
	if s.trusted == nil {
		if t, err = cfg.vouch(ctx, s); err != nil {
			return Trust{}, err
		}
	}
	t.NonceKey, err = cfg.key(ctx, NonceKeyName)
	if errors.Is(err, ErrNotFound) {
		t.NonceKey, err = cfg.makeKey(ctx, NonceKeyName)
	}
	if err != nil {
		return Trust{}, err
	}
	return t, nil
}

// makeKey offers a new key and returns the stored one, which may be another server's.
func (cfg BootstrapConfig) makeKey(ctx context.Context, name string) (ed25519.PrivateKey, error) {
	key, err := pki.GenerateKey(cfg.Random)
	if err != nil {
		return nil, err
	}
	if _, err := cfg.storeKey(ctx, name, key); err != nil {
		return nil, err
	}
	return cfg.key(ctx, name)
}

// makeBundle offers certificates for the object and returns the stored ones: those in the
// secret, or else a new one for the stored key. The body is unique, as PutConfirmed requires,
// because a new certificate has a random serial number; those in the secret are the same for
// every server.
func (cfg BootstrapConfig) makeBundle(ctx context.Context, s stored) (*pki.Bundle, error) {
	bundle := s.trusted
	if bundle == nil {
		ca, err := pki.NewCA(pki.CAConfig{Cluster: cfg.ClusterID, Key: s.key, Now: cfg.Now(), Random: cfg.Random})
		if err != nil {
			return nil, err
		}
		bundle = pki.NewBundle(ca.Certificate())
	}
	if _, err := cfg.storeBundle(ctx, bundle); err != nil {
		return nil, fmt.Errorf("create %s: %w", CACertificateObject, err)
	}
	return cfg.bundle(ctx)
}

// vouch offers the object's certificates, all signed by the CA's key, as the trusted ones, and
// joins what is stored.
func (cfg BootstrapConfig) vouch(ctx context.Context, s stored) (Trust, error) {
	if _, err := cfg.Secrets.Create(ctx, CABundleName, s.bundle.PEM()); err != nil {
		return Trust{}, err
	}
	var err error
	if s.trusted, err = cfg.trusted(ctx); err != nil {
		return Trust{}, err
	}
	return cfg.join(s, nil)
}
