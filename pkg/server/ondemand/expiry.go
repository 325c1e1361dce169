package ondemand

import (
	"context"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/writes"
)

// maxClosed bounds the requests that wait for the next sweep. Those beyond it are deleted when they are
// old again.
const maxClosed = 100_000

// Expiry deletes old requests of on-demand instances that are gone, as many as there are, but one after
// the other, to leave the store to more important work. Not safe for concurrent use.
type Expiry struct {
	records   writes.Records
	retention func() time.Duration
	now       func() time.Time
	logger    *slog.Logger
	closed    []ledger.RequestKey // by the last sweep
}

// NewExpiry returns the expiry of a term's requests. logger gets what could not be expired.
func NewExpiry(r writes.Records, retention func() time.Duration, now func() time.Time, logger *slog.Logger) *Expiry {
	return &Expiry{records: r, retention: retention, now: now, logger: logger}
}

// Run sweeps the requests until ctx ends, first an interval after the takeover, so that
// deletes of the previous term have landed.
func (e *Expiry) Run(ctx context.Context) {
	for retry.Wait(ctx, ledger.ExpireInterval) == nil {
		if err := e.sweep(ctx); err != nil && ctx.Err() == nil {
			e.logger.Warn("can't expire old requests, retrying in an hour", slog.Any("error", err))
		}
	}
}

// sweep lists the requests and expires old ones.
func (e *Expiry) sweep(ctx context.Context) error {
	now := e.now()
	closed := e.closed
	e.closed = nil
	for n, k := range closed {
		if err := e.expire(ctx, k, now.Add(-ledger.ExpireInterval/2)); err != nil {
			e.closed = closed[n:]
			return err
		}
	}
	before := now.Add(-e.retention())
	for old, err := range e.records.OldRequests(ctx, before) {
		if err != nil {
			return err
		}
		for _, k := range old {
			if err := e.expire(ctx, k, before); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Expiry) expire(ctx context.Context, k ledger.RequestKey, before time.Time) error {
	became, err := writes.During(ctx, e.records.Writes, func(ctx context.Context) (ledger.Expiry, error) {
		return e.records.Writer.Expire(ctx, k, before)
	})
	if err == nil && became == ledger.Closed && len(e.closed) < maxClosed {
		e.closed = append(e.closed, k)
	}
	return err
}
