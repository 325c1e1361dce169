package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// This file is how the groups of all tenants, which were in one object, get apart into
// one for each tenant. The old object rules until it says that they have moved, which
// is the last thing that is written: a leader that dies before leaves nothing that
// counts, and the next begins anew. From then on no late write of a server of an older
// version can land there, and one that reads it finds nothing that it can read, so it
// leaves all groups as they are.

// moves is how many tenants' objects are written at a time.
const moves = 8

// mover does so.
type mover struct{ *groups }

// moveApart sees to it that each tenant's object rules, and reports whether it moved any
// groups there. Afterwards all turns' holder may read them, unless the old object can't
// be read, which is noted.
func (g mover) moveApart(ctx context.Context) (moved bool, err error) {
	for conflicts := 1; ; conflicts++ {
		moved, err := g.tryMove(ctx)
		if !errors.Is(err, object.ErrConflict) || conflicts == maxConflicts {
			return moved, err
		}
		if end := retry.Wait(ctx, conflictBackoff().Draw(conflicts, g.cfg.Uniform)); end != nil {
			return false, errors.Join(err, end)
		}
	}
}

func (g mover) tryMove(ctx context.Context) (moved bool, err error) {
	o, err := g.records.writer.Groups(ctx, g.old.key)
	if err != nil {
		return false, err
	}
	if h, ok := config.ParseMoved(o.Body); ok && readable(g.old.key, h, g.old.epoch) == nil {
		g.breakAll(nil)
		g.floor.Store(h.Rev)
		return false, g.old.saw(h, o.ETag)
	}
	d, err := g.parseOld(o)
	if err != nil {
		g.breakAll(fmt.Errorf("the dynamic groups %w: %w", errUnreadable, err))
		return false, g.old.saw(config.Header{}, o.ETag)
	}
	if err := g.old.saw(d.Header(), o.ETag); err != nil {
		return false, err
	}
	g.floor.Store(g.old.rev)
	switch err := g.move(ctx, d, o); {
	case errors.Is(err, config.ErrTooLarge): // a person has to make it smaller; until then it is as if it could not be read
		g.breakAll(fmt.Errorf("the dynamic groups %w: move %s: %w", errUnreadable, g.old.key, err))
		return false, nil
	case err != nil:
		if o.ETag != "" {
			g.breakAll(fmt.Errorf("the dynamic groups are to be moved from %s: %w", g.old.key, err)) // until then it rules
		}
		return false, err
	}
	g.breakAll(nil)
	return o.ETag != "", nil
}

func (g mover) parseOld(o ledger.GroupsObject) (config.Dynamic, error) {
	if o.ETag == "" {
		return config.Dynamic{}, nil
	}
	d, err := config.ParseDynamic(o.Body)
	if err != nil {
		return config.Dynamic{}, fmt.Errorf("%s: %w", g.old.key, err)
	}
	// Nobody can have groups below such a name, and no object can be called by it.
	maps.DeleteFunc(d.Groups, func(name string, groups map[string]config.Entry) bool {
		err := fleet.CheckName(name)
		if err != nil {
			g.cfg.Logger.Warn("groups of no tenant are not moved", slog.String("key", g.old.key), slog.String("tenant", fmt.Sprintf("%.200q", name)),
				slog.Any("groups", slices.Sorted(maps.Keys(groups))), slog.Any("reason", err))
		}
		return err != nil
	})
	return d, readable(g.old.key, d.Header(), g.old.epoch)
}

func (g mover) breakAll(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = err
}

// move writes each tenant's object, and then that they rule. Where there was no object
// for all, the tenants' rule already, and it only keeps one from coming.
func (g mover) move(ctx context.Context, d config.Dynamic, o ledger.GroupsObject) error {
	if o.ETag != "" {
		if err := g.spread(ctx, d); err != nil {
			return err
		}
	}
	body, err := d.Moved(g.old.next(), g.records.writer.TenantKey("{tenant}"))
	if err != nil {
		return err
	}
	etag, err := during(ctx, g.records.writes, func(ctx context.Context) (object.ETag, error) {
		return g.records.writer.PutGroups(ctx, g.old.key, body, o.ETag)
	})
	if err == nil {
		g.old.landed(etag)
	}
	return err
}

// spread writes what the old object says of each tenant in place of whatever the
// tenant's object says, which a move that did not end may have left, or a time when the
// old object was written again. A tenant of which it says nothing gets an empty one, so
// that no such write of a leader before can land any more.
func (g mover) spread(ctx context.Context, d config.Dynamic) error {
	found, err := g.records.writer.Tenants(ctx)
	if err != nil {
		return err
	}
	for name := range found {
		g.of(name)
	}
	for name := range d.Groups {
		g.of(name)
	}
	writes, within := errgroup.WithContext(ctx)
	writes.SetLimit(moves)
	for _, t := range g.all(g.static) {
		writes.Go(func() error { return g.replace(within, t, found[t.name], d) })
	}
	return writes.Wait()
}

// replace writes what d says of a tenant over its object as it was found.
func (g mover) replace(ctx context.Context, t *tenant, found ledger.GroupsObject, d config.Dynamic) error {
	entries, err := d.OfTenant(t.name)
	if err != nil {
		return err
	}
	var before config.Header
	if there, err := config.ParseEntries(found.Body); err == nil {
		before = there.Header()
	}
	if err := readable(t.version.key, before, t.version.epoch); err != nil {
		before = config.Header{} // it counts for nothing
	}
	if err := t.version.saw(before, found.ETag); err != nil {
		return err
	}
	t.version.rev = max(t.version.rev, d.Rev)
	t.stale = true
	draft := entries.Draft()
	if err := g.records.writes.do(ctx, func(ctx context.Context) error { return g.put(ctx, t, draft) }); err != nil {
		return fmt.Errorf("tenant %s: %w", t.name, err)
	}
	g.breaks(t, nil)
	t.entries, t.stale = entries, false
	return nil
}

// put makes a draft of a tenant's groups durable.
func (g *groups) put(ctx context.Context, t *tenant, draft *config.Draft) error {
	before, h := t.version.etag, t.version.next()
	if h.Rev < draft.Rev() {
		h.Rev, t.version.rev = draft.Rev(), draft.Rev()
	}
	body, err := draft.Encode(h)
	if err != nil {
		return err
	}
	etag, err := g.records.writer.PutGroups(ctx, t.version.key, body, before)
	if err != nil {
		return err
	}
	t.version.landed(etag)
	draft.Land(h)
	return nil
}
