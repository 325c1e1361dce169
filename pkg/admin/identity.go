package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
)

// renewTimeout bounds the time a renewal takes from its command.
const renewTimeout = 5 * time.Second

// Identity is an operator identity kept in a folder.
type Identity struct {
	*identity.Identity
	dir string
	now func() time.Time
}

func folder(dir string) identity.Folder {
	return identity.Folder{Files: identity.Files{Dir: dir, Mode: 0o644}, Shared: true}
}

// LoadIdentity reads an identity folder, which must hold a valid operator identity;
// ErrNoIdentity if it has none.
func LoadIdentity(dir string, now func() time.Time, entropy io.Reader) (*Identity, error) {
	id, err := identity.Open(context.Background(), identity.Config{
		Store: folder(dir), Now: now, Entropy: entropy,
		Want: func(caller pki.Caller) error {
			if caller.Role != pki.RoleOperator {
				return fmt.Errorf("it is of role %s: want an operator's", caller.Role)
			}
			return nil
		},
	})
	if err == nil {
		err = id.Problem()
	}
	switch {
	case errors.Is(err, identity.ErrMissing):
		return nil, fmt.Errorf("load identity: %w in %s: %w", ErrNoIdentity, dir, err)
	case err != nil:
		return nil, fmt.Errorf("load identity: %w", err)
	case now().After(id.Certificate().NotAfter):
		return nil, fmt.Errorf("load identity: %s: %w at %s", identity.CertificateName, pki.ErrExpired,
			id.Certificate().NotAfter.UTC().Format(time.RFC3339))
	}
	return &Identity{id, dir, now}, nil
}

// renewIfDue renews the client's identity before a call. Best effort: the current certificate
// is valid for the call, and a later call or command retries.
func (c *Client) renewIfDue(ctx context.Context, s client.Shard) {
	id := c.cfg.Identity
	c.renewal.Lock() // concurrent calls wait for the new certificate
	defer c.renewal.Unlock()
	now := id.now()
	if !id.Due() || now.Before(c.renewAgain) {
		return
	}
	c.renewAgain = now.Add(id.RetryOnUse())
	within, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	err := id.Renew(within, func(ctx context.Context, publicKey string) (identity.Issued, error) {
		granted, err := c.api.RenewCertificate(ctx, s, publicKey)
		return identity.Issued{Certificate: granted.GetCertificate(), CAs: granted.GetCaChain(), Signature: granted.GetCaChainSignature()}, err
	})
	if errors.Is(err, identity.ErrHeld) {
		return // another process renewed it; this one loads it when it is due again
	}
	if err == nil {
		err = c.api.TurnOver()
	}
	if err != nil && ctx.Err() == nil && c.cfg.Warn != nil {
		c.cfg.Warn(fmt.Errorf("renew the identity in %s, which expires at %s: %w", id.dir,
			id.Certificate().NotAfter.UTC().Format(time.RFC3339), err))
	}
}

// runRenewal renews the client's identity whenever it is due, until ctx ends.
func (c *Client) runRenewal(ctx context.Context, shards []client.Shard) {
	for n := 0; len(shards) > 0; n++ {
		c.renewIfDue(ctx, shards[n%len(shards)]) // any shard's leader can renew it
		if retry.Wait(ctx, c.cfg.Identity.NextCheck()) != nil {
			return
		}
	}
}
