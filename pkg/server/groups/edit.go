package groups

import (
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/operators"
)

// maxEdits is how many edits of one tenant's groups are written concurrently. Further ones wait.
const maxEdits = 16

// maxTombstones bounds the tombstones of groups per tenant: calls for names that never existed
// would fill the store otherwise.
const maxTombstones = 10_000

// edit is one change of a group's record.
type edit struct {
	key fleet.GroupKey
	// change must be pure: it runs again after a conflict.
	change func(now groupNow) (config.GroupRecord, error)
	asked  bool // by a caller that acts on the result; the loop then reconciles the group at once
	// durable: the record is written even if it is unchanged, unless it is known to be written
	// in this term. Asked edits are written in any case: what they answer is stored.
	durable bool
	// replaces: a record that can't be read is overwritten; leaves: it is left as it is,
	// without an error.
	replaces, leaves bool
}

// groupNow is the state of a group that an edit applies to.
type groupNow struct {
	record  config.GroupRecord
	group   fleet.Group
	defined bool
}

// matches returns a Conflict error if if_etag is not the etag of the group.
func (n groupNow) matches(key fleet.GroupKey, etag *string) error {
	if etag == nil {
		return nil
	}
	now := ""
	if n.defined {
		now = operators.ETag(n.group)
	}
	switch {
	case *etag == now:
		return nil
	case !n.defined:
		return rpc.Conflict.Errorf("if_etag: %.80q, but group %s does not exist: read it again", *etag, key.Name)
	case *etag == "":
		return rpc.Conflict.Errorf("if_etag: empty, but group %s exists, with etag %q: read it again", key.Name, now)
	default:
		return rpc.Conflict.Errorf("if_etag: %.80q, but group %s has etag %q: read it again", *etag, key.Name, now)
	}
}

// dependsOnRecord reports whether a refusal depends on the group's record or its absence. A late
// write could then make it untrue.
func dependsOnRecord(err error) bool {
	for _, of := range []error{config.ErrNoGroup, config.ErrExists, config.ErrRemoved, config.ErrUnknownGroup, rpc.Conflict} {
		if errors.Is(err, of) {
			return true
		}
	}
	return errors.As(err, new(*config.ManagedError))
}

// edit changes a group's record durably, within the term.
func (g *Groups) edit(ctx context.Context, e edit) error {
	slots := g.of(e.key.Tenant).slots
	if err := slots.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for earlier edits: %w", context.Cause(ctx))
	}
	defer slots.Release(1)
	if err := g.turns.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for a config to be accepted: %w", context.Cause(ctx))
	}
	defer g.turns.Release(1)
	return g.records.Writes.Do(ctx, func(ctx context.Context) error { return g.write(ctx, e) })
}

// write is edit for a caller that holds a turn.
func (g *Groups) write(ctx context.Context, e edit) error {
	w := &groupWrite{groups: g, edit: e}
	defer w.release()
	refusal, err := g.records.Writer.EditGroup(ctx, e.key, g.cfg.Uniform, w.decide)
	if g.follow(e.key) || err == nil && refusal == nil && e.asked {
		g.cfg.Changed(e.key)
	}
	if err != nil {
		g.cfg.Doubt()
		return err
	}
	return refusal
}

// groupWrite is one edit in progress.
type groupWrite struct {
	groups   *Groups
	edit     edit
	reserved func() // releases what the edit reserved of its tenant's quota
}

func (w *groupWrite) release() {
	if w.reserved != nil {
		w.reserved()
		w.reserved = nil
	}
}

// decide implements ledger.GroupEdit.
func (w *groupWrite) decide(state ledger.GroupState) (next config.GroupRecord, write ledger.GroupWrite, refusal error) {
	w.release()
	key := w.edit.key
	if w.groups.follow(key) { // changed externally, perhaps to an invalid record
		w.groups.cfg.Changed(key)
		Problems{w.groups}.reportOne(key)
	}
	now, durable := w.groups.now(key)
	switch {
	case state.Err != nil && w.edit.leaves:
		return now.record, ledger.WriteNothing, nil
	case state.Err != nil && !w.edit.replaces:
		return refuse(w.unreadable(state.Err))
	}
	next, err := w.edit.change(now)
	switch {
	case err != nil && w.edit.asked && state.Err == nil && dependsOnRecord(err):
		return w.refuseDurably(now.record, err)
	case err != nil:
		return refuse(err)
	case next.Unreadable():
		return refuse(w.unreadable(state.Err))
	case !next.Stored(), w.idle() && durable && next.Same(now.record):
		return next, ledger.WriteNothing, nil
	}
	return w.admit(now.record, next)
}

// idle reports whether an edit that changes nothing can skip the write.
func (w *groupWrite) idle() bool { return !w.edit.asked && !w.edit.durable }

// admit accepts a record to be written if it can be read again and fits the quota.
func (w *groupWrite) admit(was, next config.GroupRecord) (config.GroupRecord, ledger.GroupWrite, error) {
	if _, err := next.Encode(); err != nil {
		return refuse(rpc.Exhausted.Errorf("%w", err))
	}
	if !w.edit.asked {
		return next, ledger.WriteOnce, nil
	}
	release, err := w.groups.reserve(w.edit.key, was, next)
	if err != nil {
		return refuse(err)
	}
	w.reserved = release
	return next, ledger.WriteAlways, nil
}

func refuse(err error) (config.GroupRecord, ledger.GroupWrite, error) {
	return config.GroupRecord{}, ledger.WriteNothing, err
}

// ErrUnreadable is in every error about a group's record that can't be read.
var ErrUnreadable = errors.New("can't be read")

func (w *groupWrite) unreadable(err error) error {
	return rpc.Precondition.Errorf("the record of group %s %w: repair or remove it, set a template, or delete or reset the group: %w",
		w.edit.key, ErrUnreadable, err)
}

// refuseDurably refuses an edit only once the record is one of this term. If there is no
// record, a tombstone is written.
func (w *groupWrite) refuseDurably(is config.GroupRecord, err error) (config.GroupRecord, ledger.GroupWrite, error) {
	if is.Stored() {
		return is, ledger.WriteOnce, err
	}
	tenant := w.edit.key.Tenant
	if n := tombstonesOf(w.groups, tenant); n >= maxTombstones {
		return refuse(rpc.Exhausted.Errorf("tenant %q has %d tombstones of groups: wait until they are pruned, "+
			"and do not call for groups that do not exist: %w", tenant, n, err))
	}
	return is.Forget(w.groups.cfg.Now()), ledger.WriteOnce, err
}

// now returns the state that an edit of a group applies to, and whether the store has it.
func (g *Groups) now(key fleet.GroupKey) (now groupNow, durable bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	k := g.kept[key]
	now.record = k.record.Since(revisionsSince(g))
	now.group, now.defined = g.group(key)
	return now, !k.held
}

// revisionsSince returns a bound that all revisions of this term exceed, so that none is
// reused, not even one of an earlier record that was removed externally and that this leader
// does not know. The caller holds mu.
func revisionsSince(g *Groups) uint64 { return max(min(g.cfg.Fence.Epoch(), 1<<30)<<20, g.lastPruned) }

// reserve adds a change of a group to its tenant's usage, if the quota allows it, until
// release is called or the changed group is counted itself.
func (g *Groups) reserve(key fleet.GroupKey, was, is config.GroupRecord) (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unreserve(key) // an earlier edit may just have failed
	t := g.tenant(key.Tenant)
	living := func() config.Living { return g.living(key.Tenant) }
	if err := g.static.CheckUsage(key, t.usage, was, is, living); err != nil {
		return nil, err
	}
	more := g.static.Usage(key, is).Minus(g.static.Usage(key, was))
	t.usage = t.usage.Plus(more)
	g.reserved[key] = &more
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.reserved[key] == &more {
			g.unreserve(key)
		}
	}, nil
}

// unreserve releases what is reserved for a group. The caller holds mu.
func (g *Groups) unreserve(key fleet.GroupKey) {
	if more, ok := g.reserved[key]; ok {
		t := g.tenant(key.Tenant)
		t.usage = t.usage.Minus(*more)
		delete(g.reserved, key)
	}
}

// living counts the tenant's live instances without on-demand ones. Instances beyond their
// group's size count as leaving before their records say so: the loop may be about to write
// that. The caller holds mu.
func (g *Groups) living(tenant string) (l config.Living) {
	for name, n := range g.records.Counts(tenant).Managed {
		group, _ := g.group(fleet.GroupKey{Tenant: tenant, Name: name})
		l.All += n.All()
		l.Leaving += n.Leaving + max(0, n.Active-group.Size)
	}
	return l
}
