package registration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/operator/secretstore"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
)

// Store holds the identity and what a registration needs.
type Store interface {
	identity.Store
	// Nonce returns the registration nonce, or secretstore.ErrNoNonce.
	Nonce(context.Context) (string, error)
	// CAsAt describes, for messages, where the cluster's CAs belong.
	CAsAt() string
}

// Config configures the registration.
type Config struct {
	Store           Store
	Cluster, Tenant string
	// Shards are tried in turn, each at the addresses of its registration service.
	Shards []client.Shard
	// Timeout bounds one shard's answer.
	Timeout   time.Duration
	UserAgent string
	Now       func() time.Time
	Random    func() float64 // in [0, 1), for jitter
	Entropy   io.Reader      // for keys
	// Dialer makes the connections; nil means TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	Logger *slog.Logger
}

// maxRounds bounds the retries after losing a race against another operator. Two operators
// need two rounds: one for the key, one for the certificate.
const maxRounds = 10

// Open returns an identity with a usable certificate. If the store has none, it registers with
// the first shard that accepts, for the stored key, or for a new key that is stored first. All
// errors are final: only a restart can help.
func Open(ctx context.Context, c Config) (*identity.Identity, error) {
	for round := 1; ; round++ {
		id, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		problem := c.problem(id)
		if problem == nil {
			return id, nil
		}
		err = c.obtain(ctx, id, problem)
		if err == nil {
			return id, nil
		}
		if !errors.Is(err, secretstore.ErrChanged) || round == maxRounds {
			return nil, err
		}
		// Another operator is registering too; what it stored is equally good.
		c.Logger.InfoContext(ctx, "another operator is registering at the same time: reading what it stored")
		if err := retry.Wait(ctx, retry.Backoff{First: 50 * time.Millisecond, Limit: time.Second}.Draw(round, c.Random)); err != nil {
			return nil, err
		}
	}
}

// Check returns why an operator would have to register now; nil if the stored certificate is
// usable. It writes nothing.
func Check(ctx context.Context, c Config) error {
	id, err := c.open(ctx)
	if err != nil {
		return err
	}
	return c.problem(id)
}

func (c Config) open(ctx context.Context) (*identity.Identity, error) {
	id, err := identity.Open(ctx, identity.Config{
		Store: c.Store, Cluster: c.Cluster, Now: c.Now, Entropy: c.Entropy,
		Want: func(caller pki.Caller) error {
			if caller.Role != pki.RoleOperator || caller.Tenant != c.Tenant {
				return fmt.Errorf("it is for role %s of tenant %q: want role %s of tenant %q", caller.Role, caller.Tenant, pki.RoleOperator, c.Tenant)
			}
			return nil
		},
	})
	if errors.Is(err, identity.ErrMissing) {
		return nil, fmt.Errorf("the cluster's CA certificates are missing: add them to %s", c.Store.CAsAt())
	}
	if err != nil {
		return nil, fmt.Errorf("load the operator's identity: %w", err)
	}
	return id, nil
}

// problem returns why a certificate is needed; nil if there is a usable one.
func (c Config) problem(id *identity.Identity) error {
	if err := id.Problem(); err != nil {
		return err
	}
	return id.Verify(c.Now())
}

func (c Config) obtain(ctx context.Context, id *identity.Identity, problem error) error {
	nonce, err := c.Store.Nonce(ctx)
	if errors.Is(err, secretstore.ErrNoNonce) {
		return fmt.Errorf("the operator has to register, because %w; but %w: create one with nstance-admin cluster nonce", problem, err)
	}
	if err != nil {
		return fmt.Errorf("read the registration nonce: %w", err)
	}
	c.Logger.LogAttrs(ctx, slog.LevelInfo, "registering", slog.Any("because", problem))
	return c.register(ctx, id, nonce)
}
