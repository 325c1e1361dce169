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

// Store is where the identity is, and what it takes to get one.
type Store interface {
	identity.Store
	// Nonce is the registration nonce; secretstore.ErrNoNonce when there is none.
	Nonce(context.Context) (string, error)
	// CAsAt says, for people, where the cluster's CAs have to be.
	CAsAt() string
}

// Config is what it takes to become, and to stay, an operator.
type Config struct {
	Store           Store
	Cluster, Tenant string
	// Shards are tried one after another, each at the addresses of its registration
	// service.
	Shards []client.Shard
	// Timeout bounds what one shard may take to answer.
	Timeout   time.Duration
	UserAgent string
	Now       func() time.Time
	Random    func() float64 // yields numbers from [0, 1), for waits
	Entropy   io.Reader      // for keys
	// Dialer makes the connections; nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	Logger *slog.Logger
}

// maxRounds is how often another operator may be first to write what this one was about
// to. Two of them need two rounds: one for the key, one for the certificate.
const maxRounds = 10

// Open returns an identity with a certificate that can be used. If the store holds none
// it registers with the first shard that lets it, for the key that the store holds, or a
// new one that is stored first. All errors are final: only a restart can find something
// different.
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
		// Another operator registers too; what it stored is as good.
		c.Logger.InfoContext(ctx, "another operator registers at the same time: looking at what it has stored")
		if err := retry.Wait(ctx, retry.Backoff{First: 50 * time.Millisecond, Limit: time.Second}.Draw(round, c.Random)); err != nil {
			return nil, err
		}
	}
}

// Check reports why an operator that opened its identity now would have to register; nil:
// what is stored does. It writes nothing.
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
		return nil, fmt.Errorf("the cluster's CA certificates are missing: put them into %s", c.Store.CAsAt())
	}
	if err != nil {
		return nil, fmt.Errorf("open the operator's identity: %w", err)
	}
	return id, nil
}

// problem is why a certificate is needed; nil: there is one that is good.
func (c Config) problem(id *identity.Identity) error {
	if err := id.Problem(); err != nil {
		return err
	}
	return id.Verify(c.Now())
}

func (c Config) obtain(ctx context.Context, id *identity.Identity, problem error) error {
	nonce, err := c.Store.Nonce(ctx)
	if errors.Is(err, secretstore.ErrNoNonce) {
		return fmt.Errorf("the operator has to register, because %w; but %w: make one with nstance-admin cluster nonce", problem, err)
	}
	if err != nil {
		return fmt.Errorf("read the registration nonce: %w", err)
	}
	c.Logger.LogAttrs(ctx, slog.LevelInfo, "registering", slog.Any("because", problem))
	return c.register(ctx, id, nonce)
}
