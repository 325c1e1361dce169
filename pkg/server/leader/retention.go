package leader

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/writes"
)

// retentionInterval is how often old objects are looked for: days matter little to what is kept for a year.
const retentionInterval = 24 * time.Hour

// retentionRetry is when they are looked for again after errors of the store.
const retentionRetry = time.Hour

// retentionDelay is how long after the takeover they are first looked for.
const retentionDelay = 3 * time.Hour

// retention deletes, for a term, what is kept for a time only and grows without an end otherwise: the
// log of certificates, and the records of removed operators.
type retention struct{ *Term }

// run looks for old objects until ctx ends.
func (t retention) run(ctx context.Context) {
	for wait := retentionDelay; retry.Wait(ctx, wait) == nil; {
		wait = retentionInterval
		certificates := t.report(ctx, "log of certificates", t.pruneCertificates)
		operators := t.report(ctx, "records of removed operators", func(ctx context.Context) (writes.Swept, error) {
			return t.registry.Prune(ctx, t.operatorsBefore)
		})
		if !certificates || !operators {
			wait = retentionRetry
		}
	}
}

// report logs what a sweep has done, and reports whether it came to its end.
func (t retention) report(ctx context.Context, what string, sweep func(context.Context) (writes.Swept, error)) bool {
	swept, err := sweep(ctx)
	if swept.Deleted > 0 {
		t.cfg.Logger.Info("deleted old objects", slog.String("of", what), slog.Int("count", swept.Deleted))
	}
	if swept.Refused > 0 {
		t.cfg.Logger.Info("object storage refuses to let old objects go", slog.String("of", what), slog.Int("count", swept.Refused),
			slog.Any("error", swept.Refusal))
	}
	if err != nil && ctx.Err() == nil {
		t.cfg.Logger.Warn("can't delete old objects, retrying in an hour", slog.String("of", what), slog.Any("error", err))
	}
	return err == nil
}

// pruneCertificates deletes from the log what has been over for the retention. Each step asks the running
// config, so that a longer retention has effect at once.
func (t retention) pruneCertificates(ctx context.Context) (total writes.Swept, errs error) {
	for _, tenant := range t.tenants() {
		before, kept := t.certificatesBefore()
		if !kept || ctx.Err() != nil {
			return total, errs
		}
		swept, err := writes.Sweep(ctx, ledger.OldCertificates(ctx, t.cfg.Store, t.cfg.Static.Shard, tenant, before), t.pruneBatch)
		total, errs = total.Add(swept), errors.Join(errs, err)
	}
	return total, errs
}

func (t retention) pruneBatch(ctx context.Context, key string) (bool, error) {
	before, kept := t.certificatesBefore()
	if !kept {
		return false, nil
	}
	return writes.During(ctx, t.records.Writes, func(ctx context.Context) (bool, error) {
		return t.records.Writer.RemoveCertificates(ctx, key, before)
	})
}

// tenants returns the tenants of the running config.
func (t retention) tenants() []string {
	tenants := map[string]bool{fleet.DefaultTenant: true}
	for name := range t.config.shard().Tenants {
		tenants[name] = true
	}
	return slices.Sorted(maps.Keys(tenants))
}

// certificatesBefore returns before when all certificates of a deleted batch have ended. ok is false if the
// log is kept forever.
func (t retention) certificatesBefore() (before time.Time, ok bool) {
	keep := t.config.shard().Server.GarbageCollection.CertificateLogRetention.Std()
	return t.cfg.Now().Add(-keep), keep > 0
}

// operatorsBefore returns before when a deleted operator was removed.
func (t retention) operatorsBefore() time.Time {
	return t.cfg.Now().Add(-t.config.shard().Server.GarbageCollection.RemovedOperatorRetention.Std())
}
