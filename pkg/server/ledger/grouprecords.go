package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

// groups is the kind of group records.
type groups struct{ shard string }

var _ kind[fleet.GroupKey, config.GroupRecord] = groups{}

func (groups) table() string    { return tableGroups }
func (x groups) prefix() string { return "groups/" + x.shard + "/" }

// key returns "groups/{shard}/{tenant}/{group}.json".
func (x groups) key(k fleet.GroupKey) string { return x.prefix() + k.Tenant + "/" + k.Name + suffix }

func (x groups) parse(key string) (fleet.GroupKey, error) {
	name, isRecord := strings.CutSuffix(strings.TrimPrefix(key, x.prefix()), suffix)
	tenant, group, found := strings.Cut(name, "/")
	if !isRecord || !found {
		return fleet.GroupKey{}, fmt.Errorf("object name %.200q is not a group's: want {tenant}/{group}.json", name)
	}
	if err := fleet.CheckName(tenant); err != nil {
		return fleet.GroupKey{}, fmt.Errorf("tenant in object name: %w", err)
	}
	if err := fleet.CheckName(group); err != nil {
		return fleet.GroupKey{}, fmt.Errorf("group in object name: %w", err)
	}
	return fleet.GroupKey{Tenant: tenant, Name: group}, nil
}

func (groups) decode(body []byte, _ fleet.GroupKey) (config.GroupRecord, error) {
	return config.DecodeGroup(body)
}
func (groups) encode(r config.GroupRecord) ([]byte, error)     { return r.Encode() }
func (groups) header(r config.GroupRecord) (epoch, rev uint64) { return r.Epoch, r.Rev }

// older reports whether found is an earlier write. An object without a header was written
// externally.
func (groups) older(found, known config.GroupRecord) bool {
	return found.Header != (config.Header{}) && found.Rev < known.Rev
}

func (groups) recalls() bool                                                    { return true }
func (groups) admit(fleet.GroupKey) error                                       { return nil }
func (groups) changed(fleet.GroupKey, *config.GroupRecord, *config.GroupRecord) {}

// GroupState is the state of a group's record.
type GroupState struct {
	// Record is the stored record, or zero if there is none. If the object can't be read, it
	// is the last version read.
	Record config.GroupRecord
	// Known is a version later than Record that memory or the cache had before; zero if there is
	// none. The older record, or its absence, is judged by it.
	Known config.GroupRecord
	ETag  object.ETag // of the object
	Err   error       // why the object can't be read
}

// GroupState returns the state of a group's record.
func (l *Ledger) GroupState(key fleet.GroupKey) GroupState {
	o := l.groupRecords
	o.mu.RLock()
	defer o.mu.RUnlock()
	return stateOf(o, key)
}

// stateOf is GroupState for a caller that holds the lock.
func stateOf(o *objects[fleet.GroupKey, config.GroupRecord], key fleet.GroupKey) GroupState {
	e := o.entries[key]
	s := GroupState{Record: e.value, Known: o.known[key], ETag: e.etag}
	if m, ok := o.malformed[o.key(key)]; ok {
		s.ETag, s.Err = m.etag, fmt.Errorf("%s: %w", o.key(key), m.err)
	}
	return s
}

// GroupStates returns the state of all known group records.
func (l *Ledger) GroupStates() map[fleet.GroupKey]GroupState {
	o := l.groupRecords
	o.mu.RLock()
	defer o.mu.RUnlock()
	all := make(map[fleet.GroupKey]GroupState, len(o.entries))
	for k := range o.entries {
		all[k] = stateOf(o, k)
	}
	for k := range o.known {
		all[k] = stateOf(o, k)
	}
	for _, m := range o.malformed {
		if m.of != (fleet.GroupKey{}) {
			all[m.of] = stateOf(o, m.of)
		}
	}
	return all
}

// ForeignGroups returns the objects below the prefix of group records whose keys are not a
// group's, with the reason.
func (l *Ledger) ForeignGroups() map[string]error {
	o := l.groupRecords
	o.mu.RLock()
	defer o.mu.RUnlock()
	foreign := map[string]error{}
	for key, m := range o.malformed {
		if m.of == (fleet.GroupKey{}) {
			foreign[key] = m.err
		}
	}
	return foreign
}

// RelistGroups syncs the group records in memory with the store, as Load does.
func (l *Ledger) RelistGroups(ctx context.Context) error {
	if _, err := l.groupRecords.compare(ctx, nil, func(config.GroupRecord) {}); err != nil {
		return fmt.Errorf("list the records of groups: %w", err)
	}
	return nil
}

// ReadGroup reads the record of a group by its key, in case a listing was stale.
func (l *Ledger) ReadGroup(ctx context.Context, key fleet.GroupKey) error {
	unlock, err := l.groupRecords.locks.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	return l.readGroup(ctx, key)
}

// readGroup is ReadGroup for a caller that holds the record's lock.
func (l *Ledger) readGroup(ctx context.Context, key fleet.GroupKey) error {
	gone, err := l.groupRecords.reload(ctx, key)
	if err != nil {
		return fmt.Errorf("read the record of group %s: %w", key, err)
	}
	if gone {
		l.groupRecords.clearMalformed(l.groupRecords.key(key))
	}
	return nil
}

// GroupEdit decides on a group's next record, and on its write. It may be called again, with a
// newer state, after a conflict. EditGroup returns refusal once the write is durable: the refusal
// depends on the record, and no late write of an earlier term may invalidate it.
type GroupEdit func(now GroupState) (next config.GroupRecord, write GroupWrite, refusal error)

// GroupWrite says whether an edit is written.
type GroupWrite int

// The values of GroupWrite.
const (
	WriteNothing GroupWrite = iota
	WriteOnce               // unless the known version is equal and was written in this term
	WriteAlways             // so that the answer says what the store has, even if the object was removed
)

// errLater is the error of editing a record that a later term wrote.
var errLater = fmt.Errorf("%w: a later term wrote the record", ErrUnknown)

// maxGroupConflicts bounds the attempts of an edit after conflicts. Only the leader writes
// groups, so conflicts are rare.
const maxGroupConflicts = 6

// groupConflictBackoff is the back-off between these attempts.
func groupConflictBackoff() retry.Backoff {
	return retry.Backoff{First: 50 * time.Millisecond, Limit: 1600 * time.Millisecond, Least: 25 * time.Millisecond}
}

// EditGroup changes the record of a group durably. uniform draws from [0, 1) for the back-off.
// After an error other than a refusal, the stored version is unknown, and is read again before
// the next edit.
func (w *Writer) EditGroup(ctx context.Context, key fleet.GroupKey, uniform func() float64, edit GroupEdit) (refusal, err error) {
	unlock, err := w.ledger.groupRecords.locks.lock(ctx, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for tries := 1; ; tries++ {
		refusal, err = w.tryEditGroup(ctx, key, edit)
		if err == nil {
			return refusal, nil
		}
		if !errors.Is(err, ErrConflict) || tries == maxGroupConflicts {
			return nil, fmt.Errorf("write the record of group %s: %w", key, err)
		}
		if end := retry.Wait(ctx, groupConflictBackoff().Draw(tries, uniform)); end != nil {
			return nil, errors.Join(err, end)
		}
	}
}

func (w *Writer) tryEditGroup(ctx context.Context, key fleet.GroupKey, edit GroupEdit) (refusal, err error) {
	o := w.ledger.groupRecords
	if _, malformed := o.malformedAt(o.key(key)); malformed || o.doubted(key) {
		if err := w.ledger.readGroup(ctx, key); err != nil {
			return nil, err
		}
	}
	now := w.ledger.GroupState(key)
	if now.Record.Epoch > w.fence.Epoch() {
		w.fence.RiseAbove(now.Record.Epoch)
		return nil, fmt.Errorf("%w: written in epoch %d, this is %d", errLater, now.Record.Epoch, w.fence.Epoch())
	}
	next, write, refusal := edit(now)
	if write == WriteNothing {
		return refusal, nil
	}
	e, _ := o.entry(key)
	if write == WriteOnce && now.Err == nil && e.landed == w.fence.Epoch() && next.Same(now.Record) && !o.doubted(key) {
		return refusal, w.fence.Act(ctx, func(context.Context) error { return nil })
	}
	next.Header = config.Header{Epoch: w.fence.Epoch(), Rev: w.nextRev(now), Writer: w.ledger.cfg.Writer}
	pre := object.IfAbsent()
	if now.ETag != "" {
		pre = object.IfMatch(now.ETag)
	}
	_, err = o.write(ctx, w.fence, key, next, pre)
	o.doubt(key, err != nil)
	return refusal, err
}

// nextRev returns the rev of a record's next write. It exceeds that of every write of an earlier
// term, including records that were removed externally and that only another server knows.
func (w *Writer) nextRev(now GroupState) uint64 {
	rev, epoch := max(now.Record.Rev, now.Known.Rev), w.fence.Epoch()
	if now.Record.Epoch < epoch {
		rev = max(rev, min(epoch, 1<<30)<<20)
	}
	return rev + 1
}

// PruneGroup removes the tombstone of a group that was written before a time, unless there are
// records of the group's instances, and reports whether it did.
//
// The delete is unconditional, so one that lands late, after its term, may hit a newer record.
// The group is then held in its last known state, like any group whose record disappeared, so
// no machine is lost.
func (w *Writer) PruneGroup(ctx context.Context, key fleet.GroupKey, before time.Time) (pruned bool, err error) {
	o := w.ledger.groupRecords
	unlock, err := o.locks.lock(ctx, key)
	if err != nil {
		return false, err
	}
	defer unlock()
	now := w.ledger.GroupState(key)
	deleted := now.Record.DeletedAt
	if now.Err != nil || deleted == nil || !deleted.Before(before) || w.ledger.Traces(key).Records > 0 {
		return false, nil
	}
	err = w.fence.Act(ctx, func(ctx context.Context) error { return w.ledger.cfg.Store.Delete(ctx, o.key(key)) })
	if err != nil {
		o.doubt(key, true)
		return false, fmt.Errorf("remove the tombstone of group %s: %w", key, err)
	}
	o.abandon(key)
	return true, nil
}

// abandon drops a record and its state. The caller holds the record's lock.
func (o *objects[K, V]) abandon(k K) {
	o.drop(k)
	o.mu.Lock()
	delete(o.known, k)
	o.mu.Unlock()
	o.cache.delete(o.table(), o.key(k))
}

// doubt records whether the outcome of a record's last write is unknown.
func (o *objects[K, V]) doubt(k K, unknown bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if unknown {
		o.doubts[k] = true
	} else {
		delete(o.doubts, k)
	}
}

func (o *objects[K, V]) doubted(k K) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.doubts[k]
}

// DoubtfulGroups returns the groups whose last write has an unknown outcome, sorted.
func (l *Ledger) DoubtfulGroups() []fleet.GroupKey {
	l.groupRecords.mu.RLock()
	defer l.groupRecords.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(l.groupRecords.doubts), fleet.GroupKey.Compare)
}
