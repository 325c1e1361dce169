package ledger

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// The kinds of failure, for errors.Is. They are the object store's, so that callers need not
// know it.
var (
	ErrNotFound = object.ErrNotFound // no such record
	ErrConflict = object.ErrConflict // another write came first: read and decide again
	ErrUnknown  = object.ErrUnknown  // the write may have landed, or may still land
)

// ErrPhase is the error of an illegal phase transition.
var ErrPhase = errors.New("illegal phase")

// Config is the configuration of a Ledger.
type Config struct {
	Store       object.Store
	Shard       string // of the instances
	Writer      string // in the header of records; unique per process start
	CachePath   string // of the SQLite file; empty: no cache
	Concurrency int    // concurrent reads, at least 1
	Logger      *slog.Logger
	Now         func() time.Time // this host's clock; nil: time.Now
}

func (c Config) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
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

// Ledger holds the records of one shard. Safe for concurrent use.
type Ledger struct {
	cfg   Config
	cache *cache // nil: none

	vanished atomic.Int64  // of the last Relist
	term     atomic.Uint64 // the latest epoch that this process led in

	index   *instances
	records *objects[instanceKey, storedInstance]

	groupRecords *objects[fleet.GroupKey, config.GroupRecord]
}

// Open returns an empty ledger; Load fills it. Only an invalid Config is an error: a broken
// cache file is replaced, and without a usable one the ledger runs uncached and logs why.
func Open(cfg Config) (*Ledger, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l := &Ledger{cfg: cfg}
	l.index = newInstances(cfg.Shard, &l.term)
	if cfg.CachePath != "" {
		l.cache = openCache(cfg.CachePath, cfg.Logger)
	}
	l.records = newObjects(cfg, l.cache, &l.term, l.index)
	l.groupRecords = newObjects(cfg, l.cache, &l.term, groups{cfg.Shard})
	return l, nil
}

// Close flushes and closes the cache.
func (l *Ledger) Close() error { return l.cache.close() }

// Instances returns all records, sorted by ID. What they point to is shared: Clone before
// changing it.
func (l *Ledger) Instances() []fleet.Instance {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	keys := l.index.sorted()
	all := make([]fleet.Instance, 0, len(keys))
	for _, k := range keys {
		all = append(all, *l.records.entries[k].value.Instance)
	}
	return all
}

// Group returns the records of one group, including tombstones and on-demand instances, sorted
// by ID and shared as those of Instances.
func (l *Ledger) Group(key fleet.GroupKey) []fleet.Instance {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	members := l.index.groups[key]
	all := make([]fleet.Instance, 0, len(members))
	for _, i := range members {
		all = append(all, *i)
	}
	return all
}

// Members is Group without a copy of each record: they must not be changed. The result reuses room.
func (l *Ledger) Members(key fleet.GroupKey, room []*fleet.Instance) []*fleet.Instance {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	return append(room, l.index.groups[key]...)
}

// Deletions returns when each deleted instance that has a record was deleted; the zero time if its record
// does not say.
func Deletions(l *Ledger) (all []time.Time) {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	for _, members := range l.index.groups {
		for _, i := range members {
			switch {
			case i.Phase != fleet.Deleted:
			case i.DeletedAt == nil:
				all = append(all, time.Time{})
			default:
				all = append(all, *i.DeletedAt)
			}
		}
	}
	return all
}

// Page returns up to limit records of a group, or of its tenant if key has no name, sorted by ID and
// shared as those of Instances: those after an ID that are of wanted phases. more says that others
// follow. It looks at what it returns and skips, not at the records before.
func (l *Ledger) Page(
	key fleet.GroupKey, after fleet.InstanceID, limit int, wanted func(fleet.Phase) bool,
) (page []fleet.Instance, more bool) {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	for i := range from(l, key, after) {
		switch {
		case !wanted(i.Phase):
			continue
		case len(page) == limit:
			return page, true
		}
		page = append(page, *i)
	}
	return page, false
}

// from yields the records of a group, or of its tenant if key has no name, that are after an ID. The
// caller holds records.mu.
func from(l *Ledger, key fleet.GroupKey, after fleet.InstanceID) iter.Seq[*fleet.Instance] {
	return func(yield func(*fleet.Instance) bool) {
		if key.Name != "" {
			members := l.index.groups[key]
			at, found := position(members, after)
			for _, i := range members[past(at, found):] {
				if !yield(i) {
					return
				}
			}
			return
		}
		keys := l.index.sorted()
		at, found := placeOf(keys, after)
		for _, k := range keys[past(at, found):] {
			if k.tenant == key.Tenant && !yield(l.records.entries[k].value.Instance) {
				return
			}
		}
	}
}

// past is the place after one that was found, or that of the next.
func past(at int, found bool) int {
	if found {
		return at + 1
	}
	return at
}

// Traces are what the records of instances show of their group.
type Traces struct {
	Revision uint64 // the highest one of the group that created any of them
	Records  int
	Found    uint64 // how often a pending or running one of an earlier term was found in this one
}

// Traces returns what the records of a group's instances show of it.
func (l *Ledger) Traces(key fleet.GroupKey) Traces {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	return Traces{Revision: l.index.madeBy[key], Records: len(l.index.groups[key]), Found: l.index.found[key]}
}

// Made reports whether an instance was created in this term.
func (l *Ledger) Made(id fleet.InstanceID) bool {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	return l.index.made[id]
}

// Get returns one record from memory, shared as those of Instances.
func (l *Ledger) Get(id fleet.InstanceID) (fleet.Instance, bool) {
	_, e, ok := l.entry(id)
	if !ok {
		return fleet.Instance{}, false
	}
	return *e.value.Instance, true
}

func (l *Ledger) entry(id fleet.InstanceID) (k instanceKey, e entry[storedInstance], ok bool) {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	tenant, ok := l.index.tenants[id]
	k = instanceKey{tenant, id}
	return k, l.records.entries[k], ok
}

// PhaseOf returns the tenant and the phase of an instance. It is for callers with little stack,
// since it copies no record.
func (l *Ledger) PhaseOf(id fleet.InstanceID) (tenant string, phase fleet.Phase, ok bool) {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	tenant, ok = l.index.tenants[id]
	if !ok {
		return "", "", false
	}
	return tenant, l.records.entries[instanceKey{tenant, id}].value.Phase, true
}

// HighestEpoch returns the highest epoch in any record, including groups, and in malformed
// objects as far as it can be read: if the election record is lost, the next leader's epoch
// must be higher.
func (l *Ledger) HighestEpoch() uint64 {
	return max(l.records.highestEpoch(), l.groupRecords.highestEpoch())
}

// Vanished returns how many records, without tombstones, the running Relist, or else the last
// one, found to be removed externally.
func (l *Ledger) Vanished() int { return int(l.vanished.Load()) }

// Malformed returns the objects that can't be decoded, by key.
func (l *Ledger) Malformed() (all []fleet.Malformed) {
	for _, key := range l.records.malformedKeys() {
		if m, ok := l.records.malformedAt(key); ok {
			all = append(all, fleet.Malformed{
				Key: key, Tenant: m.of.tenant, ID: m.of.id, Err: m.err, Refused: errors.Is(m.err, object.ErrRefused),
			})
		}
	}
	return all
}
