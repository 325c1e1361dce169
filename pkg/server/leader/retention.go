package leader

import (
	"context"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// retentionInterval is how often old objects are looked for. Most of them are listed to find the old
// ones, and days matter little to what is kept for a year.
const retentionInterval = 24 * time.Hour

// retentionDelay is how long after the takeover they are first looked for.
const retentionDelay = 3 * time.Hour

// retention deletes, for a term, what is kept for a time only and grows without an end otherwise: the
// log of certificates, and the records of removed operators.
type retention struct{ *Term }

// run looks for old objects until ctx ends.
func (t retention) run(ctx context.Context) {
	for wait := retentionDelay; retry.Wait(ctx, wait) == nil; wait = retentionInterval {
		keep, now := t.config.shard().Server.GarbageCollection, t.cfg.Now()
		t.prune(ctx, "log of certificates", now, keep.CertificateLogRetention, t.pruneCertificates)
		t.prune(ctx, "records of removed operators", now, keep.RemovedOperatorRetention, t.registry.Prune)
	}
}

func (t retention) prune(
	ctx context.Context, what string, now time.Time, keep config.Duration, prune func(context.Context, time.Time) (int, error),
) {
	deleted, err := prune(ctx, now.Add(-time.Duration(keep)))
	if deleted > 0 {
		t.cfg.Logger.Info("deleted old objects", slog.String("of", what), slog.Int("objects", deleted),
			slog.Duration("older_than", time.Duration(keep)))
	}
	if err != nil && ctx.Err() == nil {
		t.cfg.Logger.Warn("can't delete old objects, retrying in a day", slog.String("of", what), slog.Any("error", err))
	}
}

// pruneCertificates deletes batches of the log of certificates, one after the other, to leave the store to
// more important work.
func (t retention) pruneCertificates(ctx context.Context, before time.Time) (deleted int, err error) {
	for old, err := range ledger.OldCertificates(ctx, t.cfg.Store, t.cfg.Static.Shard, before) {
		if err != nil {
			return deleted, err
		}
		for _, key := range old {
			err := t.records.Writes.Do(ctx, func(ctx context.Context) error { return t.records.Writer.RemoveCertificates(ctx, key) })
			if err != nil {
				return deleted, err
			}
			deleted++
		}
	}
	return deleted, nil
}
