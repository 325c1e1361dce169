package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/groups"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/preview"
	"github.com/nstance/nstance/pkg/server/writes"
)

// acceptance accepts static configs. Everything a later leader depends on is made durable first:
// the records of groups that outlive their static definition, then the config itself, in
// applied/. Only then is the config swapped in. One acceptance runs at a time: the takeover's,
// then those of the refresher.
type acceptance struct {
	cfg     Config
	config  *running
	groups  *groups.Groups
	writes  *writes.Writes
	doubt   func()                  // called when the content of applied/ is unknown
	altered func(...fleet.GroupKey) // called when the desired state of any group may have changed
	applied versioned               // of applied/
}

// candidate is a config to accept.
type candidate struct {
	Accepted

	// permits decides by the last accepted config, before anything is written and again once all
	// groups are durable.
	permits func(last appliedConfig) error
	counted bool // all machines are known

	// swap calls inPlace, which makes next the running config, while nothing is being decided.
	swap func(next *config.Shard, inPlace func()) error
}

// atTakeover records this term's config as the last accepted one. It is not recorded while the
// record of a group that may outlive its static definition can't be read, because that record
// is needed before the group's last definition is overwritten. The term runs the config all
// the same, and refresher.late tries again.
//
// A config that is the last accepted one is recorded once the term runs (Term.tasks):
// no group outlives it, and the term does not have to wait for two more requests.
func (a *acceptance) atTakeover(ctx context.Context, removed removalCheck, counted bool) error {
	now := a.config.now()
	if now.unchanged() {
		return a.applied.saw(now.last.header, now.last.etag)
	}
	c := a.choose(now, removed)
	if c.recorded {
		return nil
	}
	c.untold = !bytes.Equal(c.body, c.last.body)
	if bytes.Equal(c.body, now.body) {
		a.config.swap(c) // with its pending removals, even if recording it fails
	}
	permits := func(last appliedConfig) error {
		if last.etag != c.last.etag {
			return fmt.Errorf("%s changed after the config was chosen; the takeover is retried", a.applied.key)
		}
		return removed.unasked(last, c)
	}
	swap := func(_ *config.Shard, inPlace func()) error { inPlace(); return nil } // nothing decides yet
	err := a.accept(ctx, candidate{c, permits, counted, swap})
	switch {
	case errors.Is(err, groups.ErrUnreadable):
		return nil
	case err == nil:
		a.tell(c)
	}
	return err
}

// tell logs that a takeover has accepted another text than the last leader, unless that was logged
// before. A refresh logs its own line.
func (a *acceptance) tell(c Accepted) {
	if !c.untold {
		return
	}
	a.cfg.Logger.Info("takeover accepted a changed config", slog.String("etag", string(c.info.ETag)),
		slog.String("applied_etag_before", string(c.last.etag)), slog.String("applied_etag", string(a.applied.etag)))
}

// choose decides between config/ and the last accepted config at a takeover. A takeover never
// removes groups that have instances: only a refresh that names them does.
func (a *acceptance) choose(c Accepted, removed removalCheck) Accepted {
	if c.other == nil {
		return c
	}
	held, next := *c.other, c
	if c.fromApplied {
		held, next = c, *c.other
	}
	held.other, next.other = nil, nil
	removals := removed.removals(held.shard, next.shard)
	_, ending := restartFields(a.cfg.Boot, next.shard)
	switch {
	case len(removals) > 0:
		held.awaits, held.awaiting = removals, next.shard
	case len(ending) > 0: // the server was started with the accepted values
		held.problems = waitsForRefresh()
	default:
		return next.on(a.cfg.Boot)
	}
	return held.on(a.cfg.Boot)
}

// accept makes c the running config: durably first, then in place. If the error is nil, this
// server was still the leader after the last write.
func (a *acceptance) accept(ctx context.Context, c candidate) error {
	return a.writes.Do(ctx, func(ctx context.Context) error {
		last, err := a.prepare(ctx)
		if err != nil {
			return err
		}
		release, err := a.groups.LockEdits(ctx) // an edit made against the old static config would be lost
		if err != nil {
			return err
		}
		defer release()
		c.Accepted = a.succeed(c.Accepted)
		if err := a.store(ctx, c, last); err != nil {
			return err
		}
		return a.swap(c, last)
	})
}

// prepare reads the last accepted config.
func (a *acceptance) prepare(ctx context.Context) (last appliedConfig, err error) {
	if last, err = a.cfg.Static.readApplied(ctx); err != nil {
		return last, err
	}
	return last, a.applied.saw(last.header, last.etag)
}

// store makes durable what a later leader needs: the groups that outlive their static definition,
// then c. The caller holds the lock of edits.
func (a *acceptance) store(ctx context.Context, c candidate, last appliedConfig) error {
	if err := c.permits(last); err != nil {
		return err
	}
	if err := a.groups.CarryOver(ctx, c.shard, a.others(c.Accepted, last), c.counted); err != nil {
		return err
	}
	if err := c.permits(last); err != nil { // a record that keeps a group may be gone by now
		return err
	}
	a.config.unrecord()
	err := a.record(ctx, c.Accepted, last)
	if err == nil {
		err = a.cfg.Fence.Check(ctx)
	}
	if err != nil {
		a.doubt() // until the running config is the recorded one
	}
	return err
}

// swap replaces the running config, unless it was only recorded anew. The caller holds the lock of
// edits.
func (a *acceptance) swap(c candidate, last appliedConfig) error {
	c.recorded, c.untold = true, false
	c.shrunk = a.shrunk(c.Accepted, last)
	if c.shard == a.config.shard() && bytes.Equal(c.body, last.body) {
		a.config.swap(c.Accepted)
		return nil
	}
	defer a.altered()
	return c.swap(c.shard, func() { a.groups.Become(c.shard); a.config.swap(c.Accepted) })
}

// shrunk returns the groups that c makes smaller by half or more, and logs them. Those of a config
// that is accepted anew stay.
func (a *acceptance) shrunk(c Accepted, last appliedConfig) (all []operators.Shrunk) {
	before := a.others(c, last)
	if len(before) == 0 {
		return a.config.now().shrunk
	}
	for _, g := range preview.Of(preview.Input{From: before[0], To: c.shard, Records: a.groups.Records()}).Groups {
		if g.Change == preview.Removed || g.Disabled != "" || g.Size == g.SizeBefore || g.Size*2 > g.SizeBefore {
			continue
		}
		all = append(all, operators.Shrunk{Key: g.Key, SizeBefore: g.SizeBefore, Size: g.Size})
		a.cfg.Logger.Warn("config makes a group smaller by half or more", slog.String("group", g.Key.String()),
			slog.Int("size_before", g.SizeBefore), slog.Int("size", g.Size))
	}
	return all
}

// others returns the static configs that c replaces, the most recent first. One with the same
// text as c is left out, because no group outlives it.
func (a *acceptance) others(c Accepted, last appliedConfig) (before []*config.Shard) {
	if now := a.config.now(); !bytes.Equal(now.body, c.body) {
		before = append(before, now.shard)
	}
	if last.shard != nil && !bytes.Equal(last.body, c.body) {
		before = append(before, last.shard)
	}
	return before
}

// record writes a newly accepted config over last, for the next leader that finds an invalid
// config/. It writes nothing if this term has written the same text; the same text written in
// another term is not proof, because an earlier write of that term may still be in flight.
func (a *acceptance) record(ctx context.Context, c Accepted, last appliedConfig) error {
	if a.applied.proven && bytes.Equal(last.body, c.body) {
		return nil
	}
	over, body := a.applied.over(), config.WithBefore(a.applied.next(), c.before, c.body)
	err := a.cfg.Fence.Act(ctx, func(ctx context.Context) error {
		etag, err := object.PutConfirmed(ctx, a.cfg.Store, a.applied.key, body, over)
		if err == nil {
			a.applied.landed(etag)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("keep the accepted config: %w", err)
	}
	return nil
}
