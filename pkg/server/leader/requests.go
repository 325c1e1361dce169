package leader

import (
	"context"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// maxExpired is how many requests one look deletes or closes at most, one after the
// other: the store has more important things to do.
const maxExpired = 1000

// expiry deletes the requests of on-demand instances that are long gone. Of the
// goroutine alone that runs it.
type expiry struct {
	records   records
	retention func() time.Duration
	now       func() time.Time
	logger    *slog.Logger
	closed    []ledger.RequestKey // by the last look
}

func (t *Term) expiry() *expiry {
	return &expiry{
		records: t.records, now: t.cfg.Now, logger: t.cfg.Logger,
		retention: func() time.Duration { return time.Duration(t.config.shard().Server.GarbageCollection.RequestRetention) },
	}
}

// run looks at the requests until ctx ends: for the first time an interval after the
// takeover, so that what the term before had deleted has long landed.
func (e *expiry) run(ctx context.Context) {
	for retry.Wait(ctx, ledger.ExpireInterval) == nil {
		if err := e.look(ctx); err != nil && ctx.Err() == nil {
			e.logger.Warn("requests of instances that are gone stay for another hour", slog.Any("error", err))
		}
	}
}

// look lists the requests, and expires those that are over.
func (e *expiry) look(ctx context.Context) error {
	now, done := e.now(), 0
	closed := e.closed
	e.closed = nil
	for n, k := range closed {
		if err := e.expire(ctx, k, now.Add(-ledger.ExpireInterval/2), &done); err != nil {
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
			if done >= maxExpired {
				return nil // the next look goes on
			}
			if err := e.expire(ctx, k, before, &done); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *expiry) expire(ctx context.Context, k ledger.RequestKey, before time.Time, done *int) error {
	became, err := during(ctx, e.records.writes, func(ctx context.Context) (ledger.Expiry, error) {
		return e.records.writer.Expire(ctx, k, before)
	})
	switch {
	case err != nil:
		return err
	case became == ledger.Closed:
		e.closed = append(e.closed, k)
		*done++
	case became == ledger.Removed:
		*done++
	}
	return nil
}
