package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/secrets"
)

// This file stores again, from memory, what no server can start without, if it is gone from object
// storage: the leader runs on without it, and would only tell once it was too late.

const (
	// ReasonRestored is the reason of the problem that an object was missing and was stored again.
	ReasonRestored = "ObjectRestored"
	// ReasonTrust is the reason of the problem that the cluster's CA or keys in object storage are not
	// those that this server was started with.
	ReasonTrust = "TrustDamaged"
)

// essentialsInterval is how often they are checked.
const essentialsInterval = time.Hour

// essentials checks them for a term.
type essentials struct{ *Term }

// run checks them periodically until ctx ends.
func (t essentials) run(ctx context.Context) {
	for retry.Wait(ctx, essentialsInterval) == nil {
		t.restoreTrust(ctx)
		t.refresh.restoreConfig(ctx)
		if t.refresh.restoreApplied(ctx) != nil {
			t.doubts.request()
		}
	}
}

func (t essentials) restoreTrust(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.config.requestTimeout())
	defer cancel()
	if t.cfg.Fence.Check(ctx) != nil {
		return // another server leads
	}
	stored, err := t.cfg.RestoreTrust(ctx)
	for _, name := range stored {
		t.refresh.reportRestored(name, "missing")
	}
	switch {
	case err == nil:
		t.Over(ReasonTrust)
	case errors.Is(err, secrets.ErrNonceKey):
		t.Report(fleet.Problem{
			At: t.cfg.Now(), Reason: ReasonTrust,
			Message: fmt.Sprintf("%v: machines and operators can't register with others; restart this server", err),
		})
	case errors.Is(err, object.ErrUnknown) && !errors.Is(err, object.ErrRefused):
		t.cfg.Logger.Warn("can't check the cluster's CA and keys in object storage", slog.Any("error", err))
	default:
		t.Report(fleet.Problem{
			At: t.cfg.Now(), Reason: ReasonTrust,
			Message: fmt.Sprintf("this server runs on, but no server can start: %.1000s", err),
		})
	}
}

// restoreConfig stores the running config as config/ if that is gone.
func (r *refresher) restoreConfig(ctx context.Context) {
	release, err := r.lock(ctx)
	if err != nil {
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, r.config.requestTimeout())
	defer cancel()
	key := ConfigKey(r.cfg.Static.Shard)
	if _, err = r.cfg.Store.Get(ctx, key); !errors.Is(err, object.ErrNotFound) {
		return // there, or unknown: the next check is soon enough
	}
	err = r.cfg.Fence.Act(ctx, func(ctx context.Context) error {
		_, err := object.PutConfirmed(ctx, r.cfg.Store, key, r.config.now().body, object.IfAbsent())
		return err
	})
	switch {
	case err == nil:
		r.reportRestored(key, "missing")
	case !errors.Is(err, object.ErrConflict): // which a new one is
		r.reportStorage(fmt.Errorf("store the running config again: %w", err))
	}
}

// restoreApplied records the running config as the last accepted one again if there is none, or a
// damaged one. An error means that it has to be retried.
func (r *refresher) restoreApplied(ctx context.Context) error {
	release, err := r.lock(ctx)
	if err != nil {
		return err
	}
	reading, cancel := context.WithTimeout(ctx, r.config.requestTimeout())
	last, err := r.cfg.Static.readApplied(reading)
	cancel()
	gone := err == nil && last.shard == nil && !errors.Is(last.err, object.ErrRefused)
	if gone {
		r.config.unrecord()
	}
	release()
	if !gone {
		return nil // there, or unknown: the next check is soon enough
	}
	if err = r.late(); err == nil {
		how := "missing"
		if last.etag != "" {
			how = "damaged"
		}
		r.reportRestored(appliedKey(r.cfg.Static.Shard), how)
	}
	return err
}

func (r *refresher) reportRestored(what, how string) {
	r.problems.Set(fleet.Problem{
		At: r.cfg.Now(), Reason: ReasonRestored,
		Message: fmt.Sprintf("%s was %s in object storage and has been stored again: find out what changes objects there, "+
			"such as a lifecycle rule of the bucket (nstance-admin storage check reads them)", what, how),
	})
}
