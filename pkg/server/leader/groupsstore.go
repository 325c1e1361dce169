package leader

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
)

// ReasonGroups is the reason of problems with the definitions of dynamic groups.
const ReasonGroups = "GroupsInvalid"

// Dynamic groups are read again once a lease after the takeover, and written if this
// term has not, so that no write of a leader before can land any more; and then they
// are read every hour; every minute while they can't be.
const (
	groupsInterval      = time.Hour
	groupsRetryInterval = time.Minute
)

// newGroups reads the dynamic groups and merges them.
func (t *Term) newGroups() (*groups, error) {
	g := &groups{
		cfg: t.cfg, records: t.records, static: t.config.shard(), version: newVersioned(t.cfg, t.records.writer.GroupsKey()),
		edits: make(chan struct{}, 1), changed: func(...fleet.GroupKey) {}, altered: func() {}, doubt: t.doubts.ask, report: t.problems.report,
	}
	return g, g.load(t.ctx)
}

func (g *groups) load(ctx context.Context) error {
	body, etag, err := g.records.writer.Groups(ctx)
	if err != nil {
		return err
	}
	dynamic, err := g.parse(body, etag)
	if err != nil {
		g.fail(err)
		return g.version.saw(config.Header{}, etag)
	}
	if err := g.version.saw(dynamic.Header(), etag); err != nil {
		return err
	}
	g.set(dynamic)
	return nil
}

func (g *groups) parse(body []byte, etag object.ETag) (config.Dynamic, error) {
	if etag == "" {
		return config.Dynamic{}, nil
	}
	d, err := config.ParseDynamic(body)
	if err != nil {
		return config.Dynamic{}, fmt.Errorf("%s: %w", g.version.key, err)
	}
	return d, readable(g.version.key, d.Header(), g.version.epoch)
}

func (g *groups) set(d config.Dynamic) {
	merged, problems := g.static.Resolve(d)
	defer g.altered()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken, g.dynamic, g.merged, g.problems = nil, d, merged, problems
}

// fail notes that the groups in the store are no text that can be read. What was
// read before goes on to count; a server that has read nothing yet knows neither
// sizes nor which groups there are, so it leaves all of them as they are.
func (g *groups) fail(err error) {
	defer g.altered()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = fmt.Errorf("the dynamic groups can't be read, mend or remove them: %w", err)
	g.problems = config.Problems{{Message: g.broken.Error()}}
	if g.merged != nil {
		return
	}
	merged, _ := g.static.Resolve(config.Dynamic{})
	for key, group := range merged {
		group.Disabled = g.broken.Error()
		merged[key] = group
	}
	g.merged = merged
}

// unreadable says why the groups in the store can't be read; nil when they can.
func (g *groups) unreadable() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.broken
}

// invalid lists what is wrong with dynamic groups.
func (g *groups) invalid() config.Problems {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.problems
}

// tell reports what is wrong with the definitions of dynamic groups.
func (g *groups) tell() {
	for _, p := range g.invalid() {
		g.report(fleet.Problem{At: g.cfg.Now(), Reason: ReasonGroups, Message: p.String(), Group: groupIn(p.Path)})
	}
}

// keepRead reads the groups again and again until ctx, the term, ends. acceptLate
// does what had to wait until they can be read.
func (g *groups) keepRead(ctx context.Context, lease time.Duration, acceptLate func() error) {
	wait, first := lease, true
	for retry.Wait(ctx, wait) == nil {
		wait = groupsInterval
		switch err := g.reload(ctx); {
		case err != nil:
			wait = groupsRetryInterval
		case first && g.unreadable() == nil:
			first = false
			g.doubt()
		}
		g.tell()
		if g.unreadable() != nil || acceptLate() != nil {
			wait = groupsRetryInterval
		}
	}
}

// reload reads the groups again, and has them acted on when they have changed.
func (g *groups) reload(ctx context.Context) error {
	release, err := g.begin(ctx)
	if err != nil {
		return err
	}
	defer release()
	before, broken := g.version.etag, g.unreadable()
	if err := g.load(ctx); err != nil {
		return err
	}
	if g.version.etag != before || broken != nil {
		g.changed()
	}
	return nil
}

// begin waits until no other edit is under way.
func (g *groups) begin(ctx context.Context) (release func(), err error) {
	select {
	case g.edits <- struct{}{}:
		return func() { <-g.edits }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the edit before: %w", context.Cause(ctx))
	}
}

// maxConflicts is how often an edit is tried that other writes come before. Nobody
// but this leader is to write there, so that is plenty.
const maxConflicts = 6

// conflictBackoff is how long it waits in between.
func conflictBackoff() retry.Backoff {
	return retry.Backoff{First: 50 * time.Millisecond, Limit: 1600 * time.Millisecond, Least: 25 * time.Millisecond}
}

// apply is the work of an edit that has begun: it applies change to the newest
// dynamic groups and makes the result durable. change must be pure: it runs again
// when another write came first. A change that changes nothing writes nothing if
// this term has written what is there; confirm then says whether this server may
// still answer for the shard. What was only read is written again, so that no write
// which is still under way somewhere can undo what the caller is told.
func (g *groups) apply(
	ctx context.Context, confirm func(context.Context) error, change func(config.Dynamic) (config.Dynamic, error),
) error {
	again := false
	defer func() {
		if again {
			g.changed()
		}
		if g.stale {
			g.doubt()
		}
	}()
	for conflicts := 0; ; {
		if g.stale || g.unreadable() != nil {
			if err := g.load(ctx); err != nil {
				return err
			}
			g.stale, again = false, true
		}
		if err := g.unreadable(); err != nil {
			return rpc.Precondition.Errorf("%w", err)
		}
		next, err := change(g.dynamic)
		if err != nil {
			return err
		}
		if g.version.proven && reflect.DeepEqual(next.Groups, g.dynamic.Groups) {
			return confirm(ctx)
		}
		err = g.put(ctx, next)
		g.stale = err != nil
		if conflicts++; !errors.Is(err, object.ErrConflict) || conflicts == maxConflicts {
			return err
		}
		// Another write came first: its version is read, and the change applied to it.
		if end := retry.Wait(ctx, conflictBackoff().Draw(conflicts, g.cfg.Uniform)); end != nil {
			return errors.Join(err, end)
		}
	}
}

// put makes d durable. Only the edit under way calls it, so nothing else
// changes g.dynamic and g.version meanwhile.
func (g *groups) put(ctx context.Context, d config.Dynamic) error {
	before, h := g.version.etag, g.version.next()
	d.Epoch, d.Rev, d.Writer = h.Epoch, h.Rev, h.Writer
	body, err := d.Encode()
	if err != nil {
		return rpc.Exhausted.Errorf("%w", err)
	}
	etag, err := g.records.writer.PutGroups(ctx, body, before)
	if err != nil {
		return err
	}
	g.version.landed(etag)
	g.set(d)
	return nil
}
