package registration

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
)

// claimed notes the unverified claims of a registration. The nonce is a secret, so only its
// hash is noted.
func claimed(ctx context.Context, token, publicKey, hostname string, ips []string) {
	audit.Claimed(ctx, "nonce_sha256", fmt.Sprintf("%x", sha256.Sum256([]byte(token))))
	if key, err := pki.ParsePublicKey([]byte(publicKey)); err == nil {
		audit.Claimed(ctx, "public_key_sha256", pki.PublicKeySHA256(key))
	}
	audit.Claimed(ctx, "hostname", hostname)
	audit.Claimed(ctx, "ip", ips...)
}

// proven notes the claims of a nonce with a valid signature.
func proven(ctx context.Context, c nonce.Claims) {
	id := c.Subject
	if c.Kind == nonce.KindOperator {
		id = c.ID
	}
	audit.On(ctx, string(c.Kind)+" "+c.Tenant+"/"+id)
	audit.Claimed(ctx, "jti", c.ID)
}
