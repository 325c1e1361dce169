package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/operators"
)

// Accepted is a static config that can run, and its origin.
type Accepted struct {
	shard *config.Shard
	body  []byte
	info  object.Info // of config/
	// restart names the fields in which shard differs from the text, because this process
	// keeps the values that it was started with.
	restart []string
	// recorded: this term wrote it to applied/.
	recorded bool
	// fromApplied: config/ is invalid, for the reasons in problems, and the last config that the
	// shard accepted runs instead. Falling back to an older one would rotate the whole fleet.
	fromApplied bool
	problems    config.Problems
	// awaits are the removals that the valid config/ needs to be confirmed, if that is why
	// applied/ runs. Sorted by key. awaiting is that config, if it was asked for, by a takeover or a
	// refresh.
	awaits   []operators.Removal
	awaiting *config.Shard
	// accepted are the groups whose removal the refresh accepted that switched to it.
	accepted []fleet.GroupKey
	// shrunk are the groups that it made smaller by half or more, sorted by key.
	shrunk []operators.Shrunk

	// before is the text that was accepted before it, and earlier parses it (Static.after).
	before  config.Packed
	earlier func() *config.Shard
	// last is applied/ as it was read with it.
	last appliedConfig
	// untold: a takeover chose another text than that of applied/, and has not accepted it yet.
	untold bool
	// other is the alternative between which and this a takeover chooses: the text of config/
	// if applied/ was preferred because config/ may remove groups that have instances, or else
	// that of applied/, if both can run and differ.
	other *Accepted
}

// on returns c as run by a process that was started with boot.
func (c Accepted) on(boot *config.Shard) Accepted {
	c.restart, _ = restartFields(boot, c.shard)
	c.shard = withBootFields(boot, c.shard)
	return c
}

// unchanged reports whether the config is the last accepted one, so that there is no choice.
func (c Accepted) unchanged() bool {
	return c.other == nil && c.last.shard != nil && bytes.Equal(c.body, c.last.body)
}

// Shard returns the config itself.
func (c Accepted) Shard() *config.Shard { return c.shard }

// running is the config that a term runs. It is swapped as a whole; what it points to is
// immutable. Safe for concurrent use.
type running struct {
	config atomic.Pointer[Accepted]
}

func (r *running) now() Accepted        { return *r.config.Load() }
func (r *running) shard() *config.Shard { return r.config.Load().shard }
func (r *running) swap(next Accepted)   { r.config.Store(&next) }

func (r *running) requestTimeout() time.Duration {
	return time.Duration(r.shard().Server.RequestTimeout)
}

// unrecord notes that applied/ may differ from the running config, until a recorded config
// is swapped in. If none is, the next refresh that finds config/ equal to the running
// config has to write applied/ again.
func (r *running) unrecord() {
	now := r.now()
	now.recorded = false
	r.swap(now)
}

// appliedConfig is the last config that the shard accepted.
type appliedConfig struct {
	shard  *config.Shard // nil: there is none, or it can't be read
	body   []byte        // without the header
	header config.Header
	before config.Packed // the text that was accepted before body
	etag   object.ETag   // empty: there is none
	err    error         // why shard is nil
}

// Static reads the static config of a shard. It is safe for concurrent use.
type Static struct {
	Store object.Store
	Shard string
	Check func(*config.Shard) error // what parsing can't check
	// Checks are the provider's. They are not applied again to a config that was accepted
	// before.
	Checks func(*config.Shard) config.Checks
	Logger *slog.Logger

	epoch atomic.Uint64 // the latest that this server led in
}

// ConfigKey returns the key of a shard's static config.
func ConfigKey(shard string) string  { return "config/" + shard + ".jsonc" }
func appliedKey(shard string) string { return "applied/" + shard + ".jsonc" }

// Read reads the shard's static config, or the last accepted one if that is missing, invalid,
// refused by the store, or may remove groups that have instances.
func (c *Static) Read(ctx context.Context) (Accepted, error) {
	var last appliedConfig
	var readErr error
	var reads sync.WaitGroup // both objects at once: a takeover waits for them
	reads.Go(func() { last, readErr = c.readApplied(ctx) })
	o, shard, err := c.text(ctx)
	reads.Wait()
	switch {
	case err == nil && readErr != nil:
		return Accepted{}, readErr
	case err == nil:
		return c.beside(last, Accepted{shard: shard, body: o.Body, info: o.Info}), nil
	case errors.Is(err, object.ErrRefused) && last.shard != nil:
		err = config.Problems{{Message: err.Error()}}
	case !errors.As(err, new(config.Problems)):
		return Accepted{}, err
	case o.ETag != "":
		err = fmt.Errorf("%s is invalid: %w", ConfigKey(c.Shard), err)
	}
	switch {
	case readErr != nil:
		return Accepted{}, errors.Join(err, readErr)
	case last.etag == "":
		return Accepted{}, err
	case last.shard == nil:
		return Accepted{}, fmt.Errorf("%w; the last accepted one, %s, can't run, too: %w", err, appliedKey(c.Shard), last.err)
	}
	c.Logger.Error("config can't run, the last accepted one stays active", slog.Any("error", err))
	return c.after(last.before, Accepted{
		shard: last.shard, body: last.body, info: o.Info, fromApplied: true, problems: problemsOf(err), last: last,
	}), nil
}

// beside returns a valid config with the last accepted one as its alternative. If the valid
// one may remove groups that have instances, the two are swapped: the texts alone can't decide
// that, and no group is removed until it is decided.
func (c *Static) beside(last appliedConfig, next Accepted) Accepted {
	next.last = last
	next = c.after(last.beforeOf(next.body), next)
	if last.shard == nil || bytes.Equal(last.body, next.body) {
		return next
	}
	held := c.after(last.before, Accepted{shard: last.shard, body: last.body, info: next.info, fromApplied: true, last: last})
	if mayRemove(last.shard, next.shard) {
		held.other = &next
		return held
	}
	next.other = &held
	return next
}

// text reads and checks config/. The error is a Problems if it is missing or invalid.
func (c *Static) text(ctx context.Context) (object.Object, *config.Shard, error) {
	key := ConfigKey(c.Shard)
	o, err := c.Store.Get(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return o, nil, config.Problems{{Message: fmt.Sprintf("no config for this shard: put one at %s in the bucket", key)}}
	case err != nil:
		return o, nil, fmt.Errorf("read config: %w", err)
	}
	shard, err := c.valid(o.Body)
	return o, shard, err
}

// valid parses and checks a text. The error is a Problems if it is invalid.
func (c *Static) valid(text []byte) (*config.Shard, error) {
	shard, err := c.check(config.Parse(text))
	if err == nil {
		err = shard.Validate(c.Checks(shard)).Err()
	}
	return shard, err
}

// check runs Check on a static config that Parse accepted. The error is a Problems with all
// mistakes.
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
	switch {
	case errors.Is(err, object.ErrNotFound):
		return appliedConfig{}, nil
	case errors.Is(err, object.ErrRefused):
		return c.refusedApplied(ctx, err)
	case err != nil:
		return appliedConfig{}, fmt.Errorf("read the last accepted config: %w", err)
	}
	last := appliedConfig{body: o.Body, etag: o.ETag}
	header, body, err := config.CutHeader(o.Body)
	if err == nil {
		err = readable(o.Key, header, c.epoch.Load())
	}
	if last.err = err; err == nil {
		last.header, last.body, last.before = header, body, config.PackedBefore(o.Body)
		last.shard, last.err = c.check(config.ParseAccepted(body))
	}
	return last, nil
}

// refusedApplied is readApplied for an object that the store refuses to return. It is as a damaged
// one: a config that is accepted replaces it, so that no later leader compares with it.
func (c *Static) refusedApplied(ctx context.Context, refusal error) (appliedConfig, error) {
	infos, err := object.All(ctx, c.Store, appliedKey(c.Shard))
	if err != nil {
		return appliedConfig{}, fmt.Errorf("read the last accepted config: %w: %w", refusal, err)
	}
	last := appliedConfig{err: refusal}
	for _, info := range infos {
		if info.Key == appliedKey(c.Shard) {
			last.etag = info.ETag
		}
	}
	return last, nil
}
