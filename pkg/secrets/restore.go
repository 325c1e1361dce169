package secrets

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
)

// Restore stores again what is missing of a trust that Bootstrap returned: without the keys no
// server could start any more. Each part is one if-absent write, and nothing is replaced. It
// returns the keys and names of what it stored, also with an error. The error is ErrBrokenTrust if
// a part is there but damaged, sealed with a key that is not configured, or of another CA: then an
// administrator has to decide, and nothing is stored.
func Restore(ctx context.Context, cfg BootstrapConfig, t Trust) (stored []string, err error) {
	there, err := cfg.compare(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("check the cluster's trust: %w", err)
	}
	parts := []struct {
		missing bool
		name    string
		create  func() (bool, error)
	}{
		{there.key == nil, "secret " + CAKeyName, func() (bool, error) { return cfg.storeKey(ctx, CAKeyName, t.key) }},
		{there.nonceKey == nil, "secret " + NonceKeyName, func() (bool, error) { return cfg.storeKey(ctx, NonceKeyName, t.NonceKey) }},
		{there.trusted == nil, "secret " + CABundleName, func() (bool, error) {
			return cfg.Secrets.Create(ctx, CABundleName, there.vouched(t).PEM())
		}},
		{there.bundle == nil, CACertificateObject, func() (bool, error) { return cfg.storeBundle(ctx, there.vouched(t)) }},
	}
	for _, p := range parts {
		if !p.missing {
			continue
		}
		created, err := p.create()
		if err != nil {
			return stored, fmt.Errorf("store the %s again: %w", p.name, err)
		}
		if created {
			stored = append(stored, p.name)
		}
	}
	return stored, nil
}

// present is the stored part of a trust; each field may be nil.
type present struct {
	stored

	nonceKey ed25519.PrivateKey
}

// compare reads what is stored. The error is ErrBrokenTrust if any of it differs from t, or can't
// be read.
func (cfg BootstrapConfig) compare(ctx context.Context, t Trust) (p present, err error) {
	var errs [4]error
	p.bundle, errs[0] = cfg.bundle(ctx)
	p.trusted, errs[1] = cfg.trusted(ctx)
	p.key, errs[2] = cfg.key(ctx, CAKeyName)
	p.nonceKey, errs[3] = cfg.key(ctx, NonceKeyName)
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrNotFound) {
			return present{}, err
		}
	}
	for name, key := range map[string][2]ed25519.PrivateKey{CAKeyName: {p.key, t.key}, NonceKeyName: {p.nonceKey, t.NonceKey}} {
		if key[0] != nil && !key[0].Equal(key[1]) {
			return present{}, fmt.Errorf("%w: the secret %s is not the one that this server was started with", ErrBrokenTrust, name)
		}
	}
	for name, bundle := range map[string]*pki.Bundle{CACertificateObject: p.bundle, "the secret " + CABundleName: p.trusted} {
		if bundle == nil {
			continue
		}
		if _, err := pki.FindCA(bundle, t.key); err != nil {
			return present{}, fmt.Errorf("%w: %s: %w", ErrBrokenTrust, name, err)
		}
	}
	return p, nil
}

// vouched returns the certificates for a part that is missing: those of the other part that t
// trusts, since CAs may have been removed after t was read, or else all of t.
func (p present) vouched(t Trust) *pki.Bundle {
	switch {
	case p.trusted != nil:
		return p.trusted
	case p.bundle == nil:
		return t.Bundle
	}
	unknown := func(c *x509.Certificate) bool { return !t.CA.Made(c) && !t.Bundle.Contains(c) }
	return pki.NewBundle(slices.DeleteFunc(p.bundle.Certificates(), unknown)...)
}

// storeKey stores a key if there is none.
func (cfg BootstrapConfig) storeKey(ctx context.Context, name string, key ed25519.PrivateKey) (created bool, err error) {
	text, err := pki.EncodePrivateKey(key)
	if err != nil {
		return false, err
	}
	return cfg.Secrets.Create(ctx, name, text)
}

// storeBundle stores the object with CA certificates if there is none.
func (cfg BootstrapConfig) storeBundle(ctx context.Context, bundle *pki.Bundle) (created bool, err error) {
	_, err = object.PutConfirmed(ctx, cfg.Store, CACertificateObject, bundle.PEM(), object.IfAbsent())
	if errors.Is(err, object.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}
