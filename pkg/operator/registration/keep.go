package registration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/identity"
)

// attemptTimeouts is how many shards that do not answer may be waited for in one attempt
// to renew.
const attemptTimeouts = 4

// KeepConfig is what Keep needs.
type KeepConfig struct {
	// Client has calls use new connections once there is another certificate, and asks
	// for it.
	Client *client.Client
	// Shards are asked one after another until one answers.
	Shards func() []client.Shard
	// Timeout bounds what one shard may take to answer.
	Timeout time.Duration
	Now     func() time.Time
	Random  func() float64
	Logger  *slog.Logger
}

// Keep renews an identity's certificate before it ends, for as long as ctx lasts; then
// it returns nil. It fails when the certificate has ended before it could be renewed:
// no shard answers any more, and another start may find a nonce to register again with.
func Keep(ctx context.Context, id *identity.Identity, c KeepConfig) error {
	keeping, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	id.Keep(keeping, identity.KeepConfig{
		Random: c.Random,
		Ask:    c.ask,
		Done: func(ctx context.Context, err error, wait time.Duration) {
			end := id.Certificate().NotAfter
			switch {
			case err == nil:
				c.renewed(ctx, end)
			case c.Now().After(end):
				stop(fmt.Errorf("the operator's certificate ended at %s and could not be renewed: %w", end.UTC().Format(time.RFC3339), err))
			default:
				c.Logger.LogAttrs(ctx, slog.LevelWarn, "could not renew the certificate yet", slog.Any("error", err),
					slog.Time("certificate_expires", end), slog.Duration("retry_in", wait))
			}
		},
	})
	if ctx.Err() != nil {
		return nil // asked to stop
	}
	return context.Cause(keeping)
}

func (c KeepConfig) ask(ctx context.Context, publicKey string) (identity.Issued, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeouts*c.Timeout)
	defer cancel()
	var errs []error
	for _, shard := range c.Shards() {
		within, cancel := context.WithTimeout(ctx, c.Timeout)
		granted, err := c.Client.RenewCertificate(within, shard, publicKey)
		cancel()
		if err == nil {
			return issuedBy(granted), nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return identity.Issued{}, errors.Join(errs...)
}

func (c KeepConfig) renewed(ctx context.Context, end time.Time) {
	c.Logger.LogAttrs(ctx, slog.LevelInfo, "renewed the certificate", slog.Time("certificate_expires", end))
	if err := c.Client.TurnOver(); err != nil {
		c.Logger.LogAttrs(ctx, slog.LevelWarn, "could not prepare a connection with the renewed certificate", slog.Any("error", err))
	}
}
