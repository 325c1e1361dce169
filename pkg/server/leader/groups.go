package leader

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
)

// groupsObject is where dynamic groups are kept; the term's ledger writer.
type groupsObject interface {
	GroupsKey() string
	Groups(ctx context.Context) ([]byte, object.ETag, error)
	PutGroups(ctx context.Context, body []byte, match object.ETag) (object.ETag, error)
}

// wanted is the state that the shard is asked to be in: the static config with
// the dynamic groups merged over it. Reads see one consistent snapshot; edits
// are durable, one after another, before they are seen.
type wanted struct {
	store  groupsObject
	jitter func(time.Duration) time.Duration

	edits   chan struct{} // holds one while an edit is under way
	version versioned     // of the groups in the store; belongs to the edit under way
	stale   bool          // what is in memory may be behind the store; the same

	// reread is called after an edit found that more has changed than it asked for.
	reread func()
	// altered is called when what is wanted has changed.
	altered func()
	// doubt is called when an edit leaves it unknown what the store holds.
	doubt func()

	mu       sync.RWMutex
	static   *config.Shard // changes only within an edit
	broken   error         // why the groups in the store can't be read; nothing is changed while it lasts
	dynamic  config.Dynamic
	groups   map[fleet.GroupKey]fleet.Group
	problems config.Problems
}

// newWanted reads the dynamic groups and merges them.
func (t *Term) newWanted() (*wanted, error) {
	w := &wanted{
		static: t.static.shard(), store: t.writer, jitter: t.cfg.Jitter, version: t.versionOf(t.writer.GroupsKey()),
		edits: make(chan struct{}, 1), reread: func() {}, altered: func() {}, doubt: t.doubt,
	}
	return w, w.load(t.ctx)
}

func (w *wanted) load(ctx context.Context) error {
	body, etag, err := w.store.Groups(ctx)
	if err != nil {
		return err
	}
	dynamic, err := w.parse(body, etag)
	if err != nil {
		w.fail(err)
		return w.version.saw(config.Header{}, etag)
	}
	if err := w.version.saw(dynamic.Header(), etag); err != nil {
		return err
	}
	w.set(dynamic)
	return nil
}

func (w *wanted) parse(body []byte, etag object.ETag) (config.Dynamic, error) {
	if etag == "" {
		return config.Dynamic{}, nil
	}
	d, err := config.ParseDynamic(body)
	if err != nil {
		return config.Dynamic{}, fmt.Errorf("%s: %w", w.version.key, err)
	}
	return d, readable(w.version.key, d.Header(), w.version.epoch)
}

func (w *wanted) set(d config.Dynamic) {
	groups, problems := w.static.Resolve(d)
	defer w.altered()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken, w.dynamic, w.groups, w.problems = nil, d, groups, problems
}

// fail notes that the groups in the store are no text that can be read. What was
// read before goes on to count; a server that has read nothing yet knows neither
// sizes nor which groups there are, so it leaves all of them as they are.
func (w *wanted) fail(err error) {
	defer w.altered()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = fmt.Errorf("the dynamic groups can't be read, mend or remove them: %w", err)
	w.problems = config.Problems{{Message: w.broken.Error()}}
	if w.groups != nil {
		return
	}
	groups, _ := w.static.Resolve(config.Dynamic{})
	for key, g := range groups {
		g.Disabled = w.broken.Error()
		groups[key] = g
	}
	w.groups = groups
}

// unreadable says why the groups in the store can't be read; nil when they can.
func (w *wanted) unreadable() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.broken
}

// reload reads the groups again, and tells reread when they have changed.
func (w *wanted) reload(ctx context.Context) error {
	release, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer release()
	before, broken := w.version.etag, w.unreadable()
	if err := w.load(ctx); err != nil {
		return err
	}
	if w.version.etag != before || broken != nil {
		w.reread()
	}
	return nil
}

// begin waits until no other edit is under way.
func (w *wanted) begin(ctx context.Context) (release func(), err error) {
	select {
	case w.edits <- struct{}{}:
		return func() { <-w.edits }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the edit before: %w", context.Cause(ctx))
	}
}

// Group returns a group as it is wanted now. One that nothing defines any more
// is to be emptied and forgotten.
func (w *wanted) Group(key fleet.GroupKey) (fleet.Group, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	g, ok := w.groups[key]
	if !ok {
		g = w.static.Orphan(key)
		if w.broken != nil {
			g.Disabled = w.broken.Error()
		}
		return g, false
	}
	return g, true
}

// Keys lists the groups that are defined, sorted.
func (w *wanted) Keys() []fleet.GroupKey {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(w.groups), fleet.GroupKey.Compare)
}

// ETag changes with every change of a group's definition.
func (w *wanted) ETag(key fleet.GroupKey) string {
	g, _ := w.Group(key)
	sum := sha256.New()
	// A group is plain data, so it always encodes; maps come out sorted.
	_ = json.NewEncoder(sum).Encode(g)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// Problems lists what is wrong with dynamic groups.
func (w *wanted) Problems() config.Problems {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.problems
}

// An edit that another hand's writes come before is tried so many times, after
// pauses that double. Nobody but this leader is to write there, so that is plenty.
const (
	maxConflicts       = 6
	conflictFirstPause = 50 * time.Millisecond
)

// edit applies change to the newest dynamic groups and makes the result
// durable. change must be pure: it runs again when somebody else wrote first. A
// change that changes nothing writes nothing if this term has written what is
// there; confirm then says whether this server may still answer for the shard.
// What was only read is written again, so that no write which is still under way
// somewhere can undo what the caller is told.
func (w *wanted) edit(ctx context.Context, confirm func(context.Context) error, change func(config.Dynamic) (config.Dynamic, error)) error {
	release, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer release()
	return w.apply(ctx, confirm, change)
}

// apply is the work of an edit that has begun.
func (w *wanted) apply(ctx context.Context, confirm func(context.Context) error, change func(config.Dynamic) (config.Dynamic, error)) error {
	again := false
	defer func() {
		if again {
			w.reread()
		}
		if w.stale {
			w.doubt()
		}
	}()
	for conflicts := 0; ; {
		if w.stale || w.unreadable() != nil {
			if err := w.load(ctx); err != nil {
				return err
			}
			w.stale, again = false, true
		}
		if err := w.unreadable(); err != nil {
			return rpc.Precondition.Errorf("%w", err)
		}
		next, err := change(w.dynamic)
		if err != nil {
			return err
		}
		if w.version.proven && reflect.DeepEqual(next.Groups, w.dynamic.Groups) {
			return confirm(ctx)
		}
		err = w.put(ctx, next)
		w.stale = err != nil
		if conflicts++; !errors.Is(err, object.ErrConflict) || conflicts == maxConflicts {
			return err
		}
		// Somebody else's hand: their version is read, and the change applied to it.
		pause := conflictFirstPause << (conflicts - 1)
		if end := rpc.Sleep(ctx, pause/2+w.jitter(pause/2)); end != nil {
			return errors.Join(err, end)
		}
	}
}

// put makes d durable. Only the edit under way calls it, so nothing else
// changes w.dynamic and w.version meanwhile.
func (w *wanted) put(ctx context.Context, d config.Dynamic) error {
	before, h := w.version.etag, w.version.next()
	d.Epoch, d.Rev, d.Writer = h.Epoch, h.Rev, h.Writer
	body, err := d.Encode()
	if err != nil {
		return rpc.Exhausted.Errorf("%w", err)
	}
	etag, err := w.store.PutGroups(ctx, body, before)
	if err != nil {
		return err
	}
	w.version.landed(etag)
	w.set(d)
	return nil
}
