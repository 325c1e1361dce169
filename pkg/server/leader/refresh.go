package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// Refresh implements operators.Shard. Refreshes come one after another.
func (s operatorShard) Refresh(ctx context.Context) (operators.Refreshed, error) {
	release, err := s.beginRefresh(ctx)
	if err != nil {
		return operators.Refreshed{}, err
	}
	defer release()
	updated, err := s.refresh(ctx)
	if err != nil {
		return operators.Refreshed{}, err
	}
	s.files.Refreshed() // secrets and storage may have changed even if the config has not
	c := s.static.now()
	return operators.Refreshed{Updated: updated, ETag: string(c.info.ETag), RestartRequired: slices.Clone(c.restart)}, nil
}

// beginRefresh waits until no other refresh is under way.
func (t *Term) beginRefresh(ctx context.Context) (release func(), err error) {
	select {
	case t.refreshes <- struct{}{}:
		return func() { <-t.refreshes }, nil
	case <-t.ctx.Done():
		return nil, ErrNoTerm()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the refresh before: %w", context.Cause(ctx))
	}
}

// refresh reads the static config again, and goes over to it when it is another
// one that is valid. Its errors are kinds of package rpc.
func (t *Term) refresh(ctx context.Context) (updated bool, err error) {
	o, err := t.readText(ctx)
	if err != nil && !errors.Is(err, object.ErrNotFound) {
		return false, t.storageError(err)
	}
	now := t.static.now()
	settled := err == nil && !now.fromApplied && now.recorded
	if settled && o.ETag == now.info.ETag {
		return false, t.stillLeading()
	}
	shard, err := t.parseText(o, err)
	if err != nil {
		t.refuse(o, err)
		return false, t.invalid(err)
	}
	if settled && bytes.Equal(o.Body, now.body) {
		now.info = o.Info
		t.static.swap(now)
		return false, t.stillLeading()
	}
	next := Accepted{shard: shard, body: o.Body, info: o.Info}.on(t.cfg.Boot)
	if err := t.accept(ctx, next, t.swapBetweenPasses(next.shard)); err != nil {
		return false, t.storageError(err)
	}
	t.refreshed()
	return true, nil
}

// readText reads config/. It gives up with the term, and after a request's time.
func (t *Term) readText(ctx context.Context) (object.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, t.requestTimeout())
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)() //nolint:contextcheck // the term's end ends the read, as the caller's does
	o, err := t.cfg.Store.Get(ctx, ConfigKey(t.cfg.Static.Shard))
	if err != nil {
		return object.Object{}, fmt.Errorf("read config: %w", err)
	}
	return o, nil
}

// parseText is the config that was read, unless reading it ended with missing. The
// error is a Problems.
func (t *Term) parseText(o object.Object, missing error) (*config.Shard, error) {
	if missing != nil {
		return nil, t.cfg.Static.noConfig()
	}
	return t.cfg.Static.parse(o.Body)
}

// refuse notes that config/ can't run, until a refresh or a look finds otherwise.
func (t *Term) refuse(o object.Object, err error) {
	now := t.static.now()
	now.info, now.fromApplied, now.problems = o.Info, true, problemsOf(err)
	t.static.swap(now)
	t.tellOfInvalidConfig()
}

func (t *Term) invalid(err error) error {
	return &rpc.ViolationsError{
		Message:    ConfigKey(t.cfg.Static.Shard) + " is not valid, the config that was accepted before goes on to run",
		Violations: violations(problemsOf(err)),
	}
}

// refreshed makes everything that does not ask for itself follow the config that
// was just swapped in.
func (t *Term) refreshed() {
	c := t.static.now()
	t.cfg.Running(c.shard)
	for _, field := range Ineffective(c.shard) {
		t.cfg.Logger.Warn("a part of the config has no effect in this version", slog.String("field", field))
	}
	t.troubles.over(ReasonConfig)
	t.tellOfGroups()
	t.cfg.Logger.Info("config refreshed", slog.String("etag", string(c.info.ETag)), slog.String("restart_required", strings.Join(c.restart, ", ")))
}

func tuning(c *config.Shard) reconcile.Tuning {
	s := c.Server
	return reconcile.Tuning{
		CreateRate: reconcile.CreateRate{
			PerSecond: s.CreateRate.PerSecond, Burst: s.CreateRate.Burst, Concurrency: s.CreateRate.Concurrency,
		},
		RequestTimeout: time.Duration(s.RequestTimeout), SweepInterval: time.Duration(s.GarbageCollection.Interval),
	}
}

// stillLeading is nil while the term lasts: an answer after it would be an old
// leader's.
func (t *Term) stillLeading() error {
	if t.ctx.Err() != nil {
		return ErrNoTerm()
	}
	return nil
}

// storageError is what to tell a caller about a refresh that the store, or the end
// of the term, kept from being done.
func (t *Term) storageError(err error) error {
	switch {
	case errors.As(err, new(rpc.Kind)):
		return err
	case t.ctx.Err() != nil, errors.Is(err, election.ErrNotLeader):
		return ErrNoTerm()
	default:
		return rpc.Unavailable.Errorf("object storage does not answer as it should, and the config that ran goes on to run: try again: %w", err)
	}
}
