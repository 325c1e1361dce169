package server

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

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/election"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
)

// groupsObject is where dynamic groups are kept; the term's ledger writer.
type groupsObject interface {
	Groups(ctx context.Context) ([]byte, object.ETag, error)
	PutGroups(ctx context.Context, body []byte, match object.ETag) (object.ETag, error)
}

// wanted is the state that the shard is asked to be in: the static config with
// the dynamic groups merged over it. Reads see one consistent snapshot; edits
// are durable, one after another, before they are seen.
type wanted struct {
	store  groupsObject
	epoch  uint64
	writer string

	edits chan struct{} // holds one while an edit is under way
	stale bool          // what is in memory may be behind the store; belongs to the edit under way

	// reread is called after an edit found that more has changed than it asked for.
	reread func()
	// altered is called when what is wanted has changed.
	altered func()

	mu       sync.RWMutex
	static   *config.Shard // changes only within an edit
	broken   error         // why the groups in the store can't be read; nothing is changed while it lasts
	dynamic  config.Dynamic
	etag     object.ETag
	groups   map[fleet.GroupKey]fleet.Group
	problems config.Problems
}

// newWanted reads the dynamic groups and merges them.
func newWanted(ctx context.Context, static *config.Shard, store groupsObject, epoch uint64, writer string) (*wanted, error) {
	w := &wanted{static: static, store: store, epoch: epoch, writer: writer, edits: make(chan struct{}, 1), reread: func() {}, altered: func() {}}
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *wanted) load(ctx context.Context) error {
	body, etag, err := w.store.Groups(ctx)
	if err != nil {
		return err
	}
	dynamic := config.Dynamic{}
	if etag != "" {
		if dynamic, err = config.ParseDynamic(body); err != nil {
			w.fail(err, etag)
			return nil
		}
	}
	if dynamic.Epoch > w.epoch {
		return fmt.Errorf("read dynamic groups: written in epoch %d, this is %d: %w", dynamic.Epoch, w.epoch, election.ErrNotLeader)
	}
	w.set(dynamic, etag)
	return nil
}

func (w *wanted) set(d config.Dynamic, etag object.ETag) {
	groups, problems := w.static.Resolve(d)
	defer w.altered()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken, w.dynamic, w.etag, w.groups, w.problems = nil, d, etag, groups, problems
}

// fail notes that the groups in the store are no text that can be read. What was
// read before goes on to count; a server that has read nothing yet knows neither
// sizes nor which groups there are, so it leaves all of them as they are.
func (w *wanted) fail(err error, etag object.ETag) {
	defer w.altered()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken, w.etag = fmt.Errorf("the dynamic groups can't be read, mend or remove them: %w", err), etag
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
	before, broken := w.etag, w.unreadable()
	if err := w.load(ctx); err != nil {
		return err
	}
	if w.etag != before || broken != nil {
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

// edit applies change to the newest dynamic groups and makes the result
// durable. change must be pure: it runs again when somebody else wrote first. A
// change that changes nothing writes nothing; confirm then says whether this
// server may still answer for the shard.
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
	for {
		if w.stale || w.unreadable() != nil {
			if err := w.load(ctx); err != nil {
				return err
			}
			w.stale = false
			defer w.reread()
		}
		if err := w.unreadable(); err != nil {
			return rpc.Precondition.Errorf("%w", err)
		}
		next, err := change(w.dynamic)
		if err != nil {
			return err
		}
		if reflect.DeepEqual(next.Groups, w.dynamic.Groups) {
			return confirm(ctx)
		}
		err = w.put(ctx, next)
		w.stale = err != nil
		if !errors.Is(err, object.ErrConflict) {
			return err
		}
		// Somebody else's hand: their version is read, and the change applied to it.
	}
}

// put makes d durable. Only the edit under way calls it, so nothing else
// changes w.dynamic and w.etag meanwhile.
func (w *wanted) put(ctx context.Context, d config.Dynamic) error {
	d.Epoch, d.Writer, d.Rev = w.epoch, w.writer, w.dynamic.Rev+1
	body, err := d.Encode()
	if err != nil {
		return rpc.Exhausted.Errorf("%w", err)
	}
	etag, err := w.store.PutGroups(ctx, body, w.etag)
	if err != nil {
		return err
	}
	w.set(d, etag)
	return nil
}
