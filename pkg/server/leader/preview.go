package leader

import (
	"context"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/preview"
	"github.com/nstance/nstance/pkg/server/writes"
)

// Preview implements operators.Static. Nothing is locked or written: a refresh or an edit at the
// same time may make the result out of date.
func (r *refresher) Preview(ctx context.Context, text []byte) (operators.ConfigPreview, error) {
	o, shard, err := r.previewed(ctx, text)
	switch {
	case errors.As(err, new(config.Problems)) && text != nil:
		return operators.ConfigPreview{}, &rpc.ViolationsError{
			Message: "the config is invalid; nothing was changed", Violations: writes.Violations(problemsOf(err)),
		}
	case errors.As(err, new(config.Problems)):
		return operators.ConfigPreview{}, r.invalid(err)
	case err != nil:
		return operators.ConfigPreview{}, r.storageError(err)
	}
	next := Accepted{shard: shard, body: o.Body, info: o.Info}.on(r.cfg.Boot)
	return r.preview(r.config.now(), next), r.stillLeading()
}

// previewed returns what a preview is of: a text, or the static config if it is nil.
func (r *refresher) previewed(ctx context.Context, text []byte) (object.Object, *config.Shard, error) {
	if text == nil {
		return r.read(ctx)
	}
	shard, err := r.cfg.Static.valid(text)
	return object.Object{Body: text}, shard, err
}

// preview returns what a switch from one config to another does.
func (r *refresher) preview(now, next Accepted) operators.ConfigPreview {
	records := r.removals.records
	return operators.ConfigPreview{
		Preview: preview.Of(preview.Input{From: now.shard, To: next.shard, Records: r.groups.Records(), Instances: records.Instances()}),
		Deleted: preview.Deleted(ledger.Deletions(records.Ledger), r.cfg.Now(), retentionOf(now.shard), retentionOf(next.shard)),
		ETag:    string(next.info.ETag), RestartRequired: next.restart, Removals: r.removals.removals(now.shard, next.shard),
	}
}

// DeletedRecords implements operators.Static.
func (r *refresher) DeletedRecords() preview.DeletedRecords {
	keep := retentionOf(r.config.shard())
	return preview.Deleted(ledger.Deletions(r.removals.records.Ledger), r.cfg.Now(), keep, keep)
}

func retentionOf(shard *config.Shard) time.Duration {
	return time.Duration(shard.Server.GarbageCollection.DeletedRecordRetention)
}
