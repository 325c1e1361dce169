package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
)

// The kinds of failure, tested with errors.Is; those of the object store, so
// that callers need not know it.
var (
	ErrNotFound = object.ErrNotFound // no such record
	ErrConflict = object.ErrConflict // somebody else wrote: look again, decide anew
	ErrUnknown  = object.ErrUnknown  // the write may have landed, or may still land
)

// ErrPhase is the error of a move that the life of an instance does not have.
var ErrPhase = errors.New("illegal phase")

// Config is what a Ledger needs.
type Config struct {
	Store       object.Store
	Shard       string // of whose instances this is the record
	Writer      string // names this process in the records that it writes; unique per process start
	CachePath   string // of the SQLite file; empty: no cache
	Concurrency int    // how many objects are read at the same time, at least 1
	Logger      *slog.Logger
}

func (c Config) validate() error {
	if err := fleet.CheckName(c.Shard); err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	switch {
	case c.Store == nil:
		return errors.New("store: missing")
	case c.Writer == "":
		return errors.New("writer: empty, want a name unique to this process start")
	case c.Concurrency < 1:
		return fmt.Errorf("concurrency: %d, want at least 1", c.Concurrency)
	case c.Logger == nil:
		return errors.New("logger: missing")
	}
	return nil
}

// Ledger is one shard's record. It is safe for concurrent use.
type Ledger struct {
	*dynamics
	cfg   Config
	cache *cache // nil: done without
	locks locks

	vanished atomic.Int64  // of the last Relist
	term     atomic.Uint64 // the latest epoch that this process has led in

	mu        sync.RWMutex
	entries   map[fleet.InstanceID]entry
	groups    map[fleet.GroupKey][]fleet.InstanceID // sorted
	order     atomic.Pointer[[]fleet.InstanceID]    // of entries, sorted; nil: since the last time some came or went
	malformed map[string]malformed                  // by key
}

// entry is a record as it was last read or written.
type entry struct {
	instance fleet.Instance // never changed in place
	unknown  record.Unknown // what else the record says
	etag     object.ETag
}

// malformed is a malformed object as it was last read.
type malformed struct {
	fleet.Malformed
	etag  object.ETag
	epoch uint64 // as far as it can be read
}

// Open returns a ledger that knows nothing yet; Load fills it. Only a wrong
// Config is an error: a cache file that is broken is replaced, and one that
// can't be used is done without; the log says why.
func Open(cfg Config) (*Ledger, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l := &Ledger{
		cfg:       cfg,
		entries:   map[fleet.InstanceID]entry{},
		groups:    map[fleet.GroupKey][]fleet.InstanceID{},
		malformed: map[string]malformed{},
	}
	if cfg.CachePath != "" {
		l.cache = openCache(cfg.CachePath, cfg.Logger)
	}
	l.dynamics = newDynamics(cfg, l.cache)
	return l, nil
}

// Close writes what the cache has not seen yet and closes it.
func (l *Ledger) Close() error { return l.cache.close() }

// Instances returns all records in the order of their ids. What the records
// point to is shared: read it, Clone before changing it.
func (l *Ledger) Instances() []fleet.Instance {
	l.mu.RLock()
	defer l.mu.RUnlock()
	ids := l.order.Load()
	if ids == nil {
		sorted := slices.Sorted(maps.Keys(l.entries))
		ids = &sorted
		l.order.Store(ids)
	}
	all := make([]fleet.Instance, 0, len(*ids))
	for _, id := range *ids {
		all = append(all, l.entries[id].instance)
	}
	return all
}

// Group returns the records of one group, tombstones and on-demand instances
// included, in the order of their ids, shared as those of Instances.
func (l *Ledger) Group(key fleet.GroupKey) []fleet.Instance {
	l.mu.RLock()
	defer l.mu.RUnlock()
	ids := l.groups[key]
	all := make([]fleet.Instance, 0, len(ids))
	for _, id := range ids {
		all = append(all, l.entries[id].instance)
	}
	return all
}

// Get returns one record from memory, shared as those of Instances.
func (l *Ledger) Get(id fleet.InstanceID) (fleet.Instance, bool) {
	e, ok := l.entry(id)
	return e.instance, ok
}

// Standing returns whose an instance is and where in its life. It is for callers
// that have no stack to spare for a whole record.
func (l *Ledger) Standing(id fleet.InstanceID) (tenant string, phase fleet.Phase, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if _, ok := l.entries[id]; !ok {
		return "", "", false
	}
	return l.entries[id].instance.Tenant, l.entries[id].instance.Phase, true
}

// HighestEpoch returns the highest epoch found in any record, in the dynamic
// groups as last seen, and in malformed objects as far as it can be read: a
// leader of this shard must be of a later one if its election record is lost.
func (l *Ledger) HighestEpoch() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var highest uint64
	for _, e := range l.entries {
		highest = max(highest, e.instance.Epoch)
	}
	outside := l.epochs()
	for _, m := range l.malformed {
		outside = append(outside, m.epoch)
	}
	for _, epoch := range outside {
		if l.inReach(epoch) == nil {
			highest = max(highest, epoch)
		}
	}
	return highest
}

// Vanished returns how many records, tombstones aside, the Relist under way or
// else the last one found to be removed by another hand.
func (l *Ledger) Vanished() int { return int(l.vanished.Load()) }

// Malformed returns the objects that were found but not understood, by key.
func (l *Ledger) Malformed() (all []fleet.Malformed) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, key := range slices.Sorted(maps.Keys(l.malformed)) {
		all = append(all, l.malformed[key].Malformed)
	}
	return all
}

func (l *Ledger) entry(id fleet.InstanceID) (entry, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e, ok := l.entries[id]
	return e, ok
}

// set keeps a record. The caller holds the instance's lock.
func (l *Ledger) set(e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, group := e.instance.ID, e.instance.GroupKey()
	if old, ok := l.entries[id]; ok && old.instance.GroupKey() != group {
		l.ungroup(old.instance)
	}
	if _, known := l.entries[id]; !known {
		l.order.Store(nil)
	}
	l.entries[id] = e
	ids := l.groups[group]
	if at, found := slices.BinarySearch(ids, id); !found {
		l.groups[group] = slices.Insert(ids, at, id)
	}
}

// drop forgets a record. The caller holds the instance's lock.
func (l *Ledger) drop(id fleet.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[id]; ok {
		l.ungroup(e.instance)
		delete(l.entries, id)
		l.order.Store(nil)
	}
}

func (l *Ledger) ungroup(i fleet.Instance) {
	ids := l.groups[i.GroupKey()]
	if at, found := slices.BinarySearch(ids, i.ID); found {
		ids = slices.Delete(ids, at, at+1)
	}
	if len(ids) == 0 {
		delete(l.groups, i.GroupKey())
		return
	}
	l.groups[i.GroupKey()] = ids
}
