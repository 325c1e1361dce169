package ondemand

import (
	"context"
	"errors"
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

// sweep lists the requests and expires old ones, after those that the last sweep closed. One that can't be
// expired waits until it is old again: two deletes of a request are at least an interval apart.
func (e *Expiry) sweep(ctx context.Context) error {
	now, closed := e.now(), e.closed
	e.closed = nil
	tried := map[ledger.RequestKey]bool{} // a prefix of closed
	page := func(yield func([]ledger.RequestKey, error) bool) { yield(closed, nil) }
	again, errClosed := writes.Sweep(ctx, page, func(ctx context.Context, k ledger.RequestKey) (bool, error) {
		tried[k] = true
		return e.expire(ctx, k, now.Add(-ledger.ExpireInterval/2))
	})
	e.closed = append(e.closed, closed[len(tried):]...)
	old := e.records.OldRequests(ctx, now.Add(-e.retention()))
	swept, errOld := writes.Sweep(ctx, old, func(ctx context.Context, k ledger.RequestKey) (bool, error) {
		if tried[k] {
			return false, nil
		}
		return e.expire(ctx, k, now.Add(-e.retention()))
	})
	return errors.Join(errClosed, errOld, again.Add(swept).Refusal)
}

// expire deletes a request, or closes it for the next sweep.
func (e *Expiry) expire(ctx context.Context, k ledger.RequestKey, before time.Time) (bool, error) {
	became, err := writes.During(ctx, e.records.Writes, func(ctx context.Context) (ledger.Expiry, error) {
		return e.records.Writer.Expire(ctx, k, before)
	})
	if err == nil && became == ledger.Closed && len(e.closed) < maxClosed {
		e.closed = append(e.closed, k)
	}
	return became == ledger.Removed, err
}
