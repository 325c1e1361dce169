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

// attemptTimeouts bounds how many timeouts one renewal attempt may wait for.
const attemptTimeouts = 4

// RenewalConfig configures RunRenewal.
type RenewalConfig struct {
	// Client requests the renewal, and uses new connections once the certificate has changed.
	Client *client.Client
	// Shards are tried in turn until one answers.
	Shards func() []client.Shard
	// Timeout bounds one shard's answer.
	Timeout time.Duration
	Now     func() time.Time
	Random  func() float64
	Logger  *slog.Logger
}

// RunRenewal renews an identity's certificate before it expires, until ctx ends; then it
// returns nil. It fails when the certificate has expired: no shard accepts it any more, and a
// restart may find a nonce to register again with.
func RunRenewal(ctx context.Context, id *identity.Identity, c RenewalConfig) error {
	keeping, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	id.RunRenewal(keeping, identity.RenewalConfig{
		Random: c.Random,
		Ask:    c.request,
		Done: func(ctx context.Context, err error, wait time.Duration) {
			end := id.Certificate().NotAfter
			switch {
			case err == nil:
				c.renewed(ctx, end)
			case c.Now().After(end):
				stop(fmt.Errorf("the operator's certificate expired at %s and could not be renewed: %w", end.UTC().Format(time.RFC3339), err))
			default:
				c.Logger.LogAttrs(ctx, slog.LevelWarn, "could not renew the certificate yet", slog.Any("error", err),
					slog.Time("certificate_expires", end), slog.Duration("retry_in", wait))
			}
		},
	})
	if ctx.Err() != nil {
		return nil // ctx ended
	}
	return context.Cause(keeping)
}

func (c RenewalConfig) request(ctx context.Context, publicKey string) (identity.Issued, error) {
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

func (c RenewalConfig) renewed(ctx context.Context, end time.Time) {
	c.Logger.LogAttrs(ctx, slog.LevelInfo, "renewed the certificate", slog.Time("certificate_expires", end))
	if err := c.Client.TurnOver(); err != nil {
		c.Logger.LogAttrs(ctx, slog.LevelWarn, "could not prepare a connection with the renewed certificate", slog.Any("error", err))
	}
}
