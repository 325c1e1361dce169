package secrets

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
)

// TrustCAs adds trusted CAs to a cluster, and returns the result. Servers read it when they
// start. The secret is written first: a call that fails half-way has changed nothing, or
// everything but the object, and may be repeated. Concurrent calls may undo each other if
// secrets are stored at AWS.
func TrustCAs(ctx context.Context, cfg BootstrapConfig, more *pki.Bundle) (*pki.Bundle, error) {
	t, err := Load(ctx, cfg)
	if err != nil {
		return nil, err
	}
	bundle := t.Bundle.Join(more)
	if err := cfg.Secrets.Replace(ctx, CABundleName, bundle.PEM()); err != nil {
		return nil, fmt.Errorf("trust more CAs: %w", err)
	}
	if err := cfg.publish(ctx, bundle); err != nil {
		return nil, fmt.Errorf("trust more CAs: %w", err)
	}
	return bundle, nil
}

// ErrNoSuchCA means that no trusted certificate has the fingerprint.
var ErrNoSuchCA = errors.New("no trusted CA with this fingerprint")

// DistrustCA removes the CA with a fingerprint (pki.Fingerprint) from a cluster's trusted
// ones, and returns the result. Certificates signed by the CA's own key can't be removed. The
// object is written first: a call that fails half-way has changed nothing that matters, and
// may be repeated.
func DistrustCA(ctx context.Context, cfg BootstrapConfig, fingerprint string) (*pki.Bundle, error) {
	t, err := Load(ctx, cfg)
	if err != nil {
		return nil, err
	}
	certs := t.Bundle.Certificates()
	at := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return pki.Fingerprint(c) == fingerprint })
	if at < 0 {
		return nil, fmt.Errorf("%w: SHA-256 %.80q", ErrNoSuchCA, fingerprint)
	}
	if t.CA.Made(certs[at]) {
		return nil, fmt.Errorf("the CA with SHA-256 %s is this cluster's signing CA and can't be removed", fingerprint)
	}
	bundle := pki.NewBundle(slices.Delete(certs, at, at+1)...)
	if err := cfg.publish(ctx, bundle); err != nil {
		return nil, fmt.Errorf("distrust a CA: %w", err)
	}
	if err := cfg.Secrets.Replace(ctx, CABundleName, bundle.PEM()); err != nil {
		return nil, fmt.Errorf("distrust a CA: %w", err)
	}
	return bundle, nil
}

// publish writes the object if it differs. An equal write by another call counts as this
// one's.
func (cfg BootstrapConfig) publish(ctx context.Context, bundle *pki.Bundle) error {
	was, err := cfg.Store.Get(ctx, CACertificateObject)
	if err != nil {
		return fmt.Errorf("get %s: %w", CACertificateObject, err)
	}
	if string(was.Body) == string(bundle.PEM()) {
		return nil
	}
	if _, err := object.PutConfirmed(ctx, cfg.Store, CACertificateObject, bundle.PEM(), object.IfMatch(was.ETag)); err != nil {
		return fmt.Errorf("replace %s: %w", CACertificateObject, err)
	}
	return nil
}
