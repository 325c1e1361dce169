package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/operators"
)

// Accepted is a static config that can run, and where it came from.
type Accepted struct {
	shard *config.Shard
	body  []byte
	info  object.Info // of config/
	// restart names the fields of the text in which shard is not what the text
	// says, because this process goes on with the values that it was started on.
	restart []string
	// recorded: applied/ is known to hold it, by a write of this term.
	recorded bool
	// fromApplied: config/ is not valid, for the reasons in problems, and the last
	// config that the shard accepted runs instead. A server that fell back to
	// anything older would rotate the whole fleet.
	fromApplied bool
	problems    config.Problems
	// awaits are the removals for which config/, which is valid, waits to be
	// confirmed, when that is why applied/ runs. Sorted by key.
	awaits []operators.Removal

	// seen is the version of applied/ that was read beside; empty: there was none.
	seen object.ETag
	// other is the text of config/ when applied/ was preferred, because it may take
	// away groups that have instances, or else that of applied/, when both can run and
	// differ. A takeover chooses between the two.
	other *Accepted
}

// on is c as a process that was started on boot can run it.
func (c Accepted) on(boot *config.Shard) Accepted {
	c.restart, _ = restartFields(boot, c.shard)
	c.shard = keepBoot(boot, c.shard)
	return c
}

// Shard is the config itself.
func (c Accepted) Shard() *config.Shard { return c.shard }

// running is the config that a term runs. It is swapped as a whole, and what it
// points to never changes. Safe for concurrent use.
type running struct {
	config atomic.Pointer[Accepted]
}

func (r *running) now() Accepted        { return *r.config.Load() }
func (r *running) shard() *config.Shard { return r.config.Load().shard }
func (r *running) swap(next Accepted)   { r.config.Store(&next) }

func (r *running) requestTimeout() time.Duration {
	return time.Duration(r.shard().Server.RequestTimeout)
}

// unrecord notes that applied/ may hold another config than the one that runs from
// here on, until one is swapped in that is recorded: if that never comes about,
// whoever finds config/ as it runs now has to record it again.
func (r *running) unrecord() {
	now := r.now()
	now.recorded = false
	r.swap(now)
}

// appliedConfig is the last config that the shard accepted.
type appliedConfig struct {
	shard  *config.Shard // nil: there is none, or none that can be read
	body   []byte        // without the header
	header config.Header
	etag   object.ETag // empty: there is none
	err    error       // why shard is nil
}

// Static reads the static config of a shard. It is safe for concurrent use.
type Static struct {
	Store object.Store
	Shard string
	Check func(*config.Shard) error // what parsing can't know
	// Checks are what the provider knows, of which a config that was accepted before
	// needs no more to be sure.
	Checks func(*config.Shard) config.Checks
	Logger *slog.Logger

	epoch atomic.Uint64 // the latest that this server has led in
}

// ConfigKey is where the static config of a shard is.
func ConfigKey(shard string) string  { return "config/" + shard + ".jsonc" }
func appliedKey(shard string) string { return "applied/" + shard + ".jsonc" }

// Read reads the shard's static config, or the last accepted one when that
// is missing or not valid, or may take away groups that have instances.
func (c *Static) Read(ctx context.Context) (Accepted, error) {
	o, shard, err := c.text(ctx)
	switch {
	case err == nil:
		return c.beside(ctx, Accepted{shard: shard, body: o.Body, info: o.Info})
	case !errors.As(err, new(config.Problems)):
		return Accepted{}, err
	case o.ETag != "":
		err = fmt.Errorf("%s is not valid: %w", ConfigKey(c.Shard), err)
	}
	last, readErr := c.readApplied(ctx)
	switch {
	case readErr != nil:
		return Accepted{}, errors.Join(err, readErr)
	case last.etag == "":
		return Accepted{}, err
	case last.shard == nil:
		return Accepted{}, fmt.Errorf("%w; nor is the last accepted one, %s: %w", err, appliedKey(c.Shard), last.err)
	}
	c.Logger.Error("the shard's config can't run, the last accepted one does", slog.Any("error", err))
	return Accepted{
		shard: last.shard, body: last.body, info: o.Info, fromApplied: true, problems: problemsOf(err), seen: last.etag,
	}, nil
}

// beside puts the last accepted config beside a valid one, or before it: whether groups
// may be taken away that have instances can't be told from texts alone, and until it is
// told they are not.
func (c *Static) beside(ctx context.Context, next Accepted) (Accepted, error) {
	last, err := c.readApplied(ctx)
	if err != nil {
		return Accepted{}, err
	}
	next.seen = last.etag
	if last.shard == nil || bytes.Equal(last.body, next.body) {
		return next, nil
	}
	held := Accepted{shard: last.shard, body: last.body, info: next.info, fromApplied: true, seen: last.etag}
	if mayRemove(last.shard, next.shard) {
		held.other = &next
		return held, nil
	}
	next.other = &held
	return next, nil
}

// text reads and checks config/ as it is. The error is a Problems when there is none
// or it is not valid.
func (c *Static) text(ctx context.Context) (object.Object, *config.Shard, error) {
	key := ConfigKey(c.Shard)
	o, err := c.Store.Get(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return o, nil, config.Problems{{Message: fmt.Sprintf("no config for this shard: put one at %s in the bucket", key)}}
	case err != nil:
		return o, nil, fmt.Errorf("read config: %w", err)
	}
	shard, err := c.check(config.Parse(o.Body))
	if err == nil {
		err = shard.Validate(c.Checks(shard)).Err()
	}
	return o, shard, err
}

// check adds to what Parse says of a static config what it can't know. The error
// lists everything that is wrong, as Problems.
func (c *Static) check(shard *config.Shard, err error) (*config.Shard, error) {
	if err == nil {
		err = c.Check(shard)
	}
	if err != nil {
		return nil, err
	}
	return shard, nil
}

func problemsOf(err error) config.Problems {
	var problems config.Problems
	if errors.As(err, &problems) {
		return problems
	}
	return config.Problems{{Message: err.Error()}}
}

// readApplied reads the last config that the shard accepted, if there is one.
func (c *Static) readApplied(ctx context.Context) (appliedConfig, error) {
	o, err := c.Store.Get(ctx, appliedKey(c.Shard))
	if errors.Is(err, object.ErrNotFound) {
		return appliedConfig{}, nil
	}
	if err != nil {
		return appliedConfig{}, fmt.Errorf("read the last accepted config: %w", err)
	}
	last := appliedConfig{body: o.Body, etag: o.ETag}
	header, body, err := config.CutHeader(o.Body)
	if err == nil {
		err = readable(o.Key, header, c.epoch.Load())
	}
	if last.err = err; err == nil {
		last.header, last.body = header, body
		last.shard, last.err = c.check(config.ParseAccepted(body))
	}
	return last, nil
}
