package secrets

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
)

// Bootstrap returns the cluster's trust and makes what is missing of it, in this
// order: the CA's key, the CA's certificate from the stored key, the key of the
// registration nonces. Each is one if-absent write that is then read back, so
// servers that race agree on what was stored first, and one that dies half-way
// leaves what the next one finishes.
//
// It never makes a second one of anything: a certificate without its key, a pair
// that does not match, a CA of another cluster or a key that does not decrypt is
// ErrBrokenTrust, with what to do. Errors of the storage wrap object.ErrUnknown;
// the whole call can be repeated. ctx should have an end.
func Bootstrap(ctx context.Context, cfg BootstrapConfig) (Trust, error) {
	t, err := cfg.bootstrap(ctx)
	if err != nil {
		return Trust{}, fmt.Errorf("set up the cluster's trust: %w", err)
	}
	return t, nil
}

func (cfg BootstrapConfig) bootstrap(ctx context.Context) (Trust, error) {
	if cfg.ClusterID == "" {
		return Trust{}, errors.New("no cluster id is given")
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
		if s.bundle, err = cfg.makeCertificate(ctx, s.key); err != nil {
			return Trust{}, err
		}
	}
	// Checked before anything more is written: a bucket that is not ours, or not
	// in order, gets nothing from us.
	t, err := cfg.join(s, nil)
	if err != nil {
		return Trust{}, err
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

// makeKey offers a new key and returns the one that is stored, which may be
// another server's.
func (cfg BootstrapConfig) makeKey(ctx context.Context, name string) (ed25519.PrivateKey, error) {
	key, err := pki.GenerateKey(cfg.Random)
	if err != nil {
		return nil, err
	}
	text, err := pki.EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	if _, err := cfg.Secrets.Create(ctx, name, text); err != nil {
		return nil, err
	}
	return cfg.key(ctx, name)
}

// makeCertificate offers a certificate for the stored key and returns what is
// stored. The random serial number makes the body unique, as Settle asks for.
func (cfg BootstrapConfig) makeCertificate(ctx context.Context, key ed25519.PrivateKey) (*pki.Bundle, error) {
	ca, err := pki.NewCA(pki.CAConfig{Cluster: cfg.ClusterID, Key: key, Now: cfg.Now(), Random: cfg.Random})
	if err != nil {
		return nil, err
	}
	body := pki.EncodeCertificate(ca.Certificate())
	_, err = object.Settle(ctx, cfg.Store, CACertificateObject, body, object.IfAbsent())
	if err != nil && !errors.Is(err, object.ErrConflict) {
		return nil, fmt.Errorf("create %s: %w", CACertificateObject, err)
	}
	return cfg.bundle(ctx)
}
