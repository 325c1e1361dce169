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

// ErrNonceKey means that the key for registration nonces in storage is not the one that the caller
// uses, so that others refuse its nonces.
var ErrNonceKey = errors.New("another server has made a new key for registration nonces")

// Restore stores again what is missing of a trust, as it was when it was last read: without the keys
// no server could start any more. Each part is one if-absent write, and nothing is replaced. It
// returns the trust as it is stored now, for the next call, and the keys and names of what it
// stored; both also with an error. The error is ErrBrokenTrust if no server could start with what is
// stored, since a part is damaged, sealed with a key that is not configured, or of another CA: then
// an administrator has to decide. It is ErrNonceKey if only that key differs.
func Restore(ctx context.Context, cfg BootstrapConfig, last Trust) (now Trust, stored []string, err error) {
	fail := func(err error) (Trust, []string, error) {
		return last, stored, fmt.Errorf("check the cluster's trust: %w", err)
	}
	there, err := cfg.compare(ctx, last)
	if err != nil {
		return fail(err)
	}
	parts := cfg.missing(ctx, there, last)
	for _, part := range parts {
		switch created, err := part.create(); {
		case err != nil:
			return fail(fmt.Errorf("store the %s again: %w", part.name, err))
		case created:
			stored = append(stored, part.name)
		default: // another server stored it meanwhile, perhaps with a CA of its own
			if _, err := cfg.compare(ctx, last); err != nil {
				return fail(err)
			}
		}
	}
	if len(parts) == 0 {
		now, err = cfg.join(there.stored, there.nonceKey)
	} else {
		now, err = Load(ctx, cfg)
	}
	if err != nil {
		return fail(err)
	}
	if !now.NonceKey.Equal(last.NonceKey) {
		now.NonceKey = last.NonceKey
		return now, stored, ErrNonceKey
	}
	return now, stored, nil
}

// part is a part of a trust that is missing.
type part struct {
	name   string
	create func() (created bool, err error)
}

// missing returns the missing parts in the order in which they are created.
func (cfg BootstrapConfig) missing(ctx context.Context, there present, last Trust) (parts []part) {
	key := func(name string, key ed25519.PrivateKey) part {
		return part{"secret " + name, func() (bool, error) { return cfg.storeKey(ctx, name, key) }}
	}
	if there.key == nil {
		parts = append(parts, key(CAKeyName, last.key))
	}
	if there.nonceKey == nil {
		parts = append(parts, key(NonceKeyName, last.NonceKey))
	}
	bundle := there.vouched(last)
	if there.trusted == nil {
		parts = append(parts, part{"secret " + CABundleName + count(bundle), func() (bool, error) {
			return cfg.Secrets.Create(ctx, CABundleName, bundle.PEM())
		}})
	}
	if there.bundle == nil {
		parts = append(parts, part{CACertificateObject + count(bundle), func() (bool, error) { return cfg.storeBundle(ctx, bundle) }})
	}
	return parts
}

// count says of how many CAs a bundle is, if there are others than the cluster's own.
func count(b *pki.Bundle) string {
	if n := len(b.Certificates()); n > 1 {
		return fmt.Sprintf(" with %d CAs", n)
	}
	return ""
}

// present is the stored part of a trust; each field may be nil.
type present struct {
	stored

	nonceKey ed25519.PrivateKey
}

// compare reads what is stored. The error is ErrBrokenTrust if it is of another CA than t, or can't
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
	if p.key != nil && !p.key.Equal(t.key) {
		return present{}, fmt.Errorf("%w: the secret %s is not the one that this server was started with", ErrBrokenTrust, CAKeyName)
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
