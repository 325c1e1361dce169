package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/record"
)

// instanceKey identifies the record of an instance.
type instanceKey struct {
	tenant string
	id     fleet.InstanceID
}

func keyOf(i fleet.Instance) instanceKey { return instanceKey{i.Tenant, i.ID} }

func (k instanceKey) String() string { return "instance " + string(k.id) }

// storedInstance is an instance's record with its unknown fields. The record is never changed in place.
type storedInstance struct {
	*fleet.Instance
	unknown record.Unknown
}

// record returns a copy of the record; zero if there is none.
func (s storedInstance) record() fleet.Instance {
	if s.Instance == nil {
		return fleet.Instance{}
	}
	return *s.Instance
}

// instances is the kind of instance records, with indexes, which are guarded by objects.mu.
type instances struct {
	shard   string
	tenants map[fleet.InstanceID]string          // of the known records
	groups  map[fleet.GroupKey][]*fleet.Instance // sorted by ID
	madeBy  map[fleet.GroupKey]uint64            // the highest revision of a group in a record
	found   map[fleet.GroupKey]uint64            // Traces.Found
	made    map[fleet.InstanceID]bool            // those that were created in this term
	term    *atomic.Uint64
	order   atomic.Pointer[[]instanceKey] // keys of tenants, by ID; nil until they are needed
}

var _ kind[instanceKey, storedInstance] = (*instances)(nil)

func newInstances(shard string, term *atomic.Uint64) *instances {
	return &instances{
		shard: shard, tenants: map[fleet.InstanceID]string{}, groups: map[fleet.GroupKey][]*fleet.Instance{},
		madeBy: map[fleet.GroupKey]uint64{}, found: map[fleet.GroupKey]uint64{},
		made: map[fleet.InstanceID]bool{}, term: term,
	}
}

func (x *instances) table() string { return tableInstances }

func (x *instances) prefix() string { return "instance/" + x.shard + "/" }

// key returns "instance/{shard}/{tenant}.{storage-key}.json".
func (x *instances) key(k instanceKey) string {
	return x.prefix() + k.tenant + "." + k.id.StorageKey() + suffix
}

func (x *instances) parse(key string) (instanceKey, error) {
	name, isRecord := strings.CutSuffix(strings.TrimPrefix(key, x.prefix()), suffix)
	tenant, storageKey, found := strings.Cut(name, ".")
	if !isRecord || !found {
		return instanceKey{}, fmt.Errorf("object name %.200q is not a record's: want {tenant}.{uuid}-{kind}.json", name)
	}
	if err := fleet.CheckName(tenant); err != nil {
		return instanceKey{}, fmt.Errorf("tenant in object name: %w", err)
	}
	id, err := fleet.ParseStorageKey(storageKey)
	return instanceKey{tenant, id}, err
}

func (x *instances) decode(body []byte, k instanceKey) (storedInstance, error) {
	i, unknown, err := record.Decode[fleet.Instance](body)
	if err != nil {
		return storedInstance{}, fmt.Errorf("decode record: %w", err)
	}
	switch {
	case i.ID != k.id:
		return storedInstance{}, fmt.Errorf("id: %.80q, want %q as in the key", i.ID, k.id)
	case i.Tenant != k.tenant:
		return storedInstance{}, fmt.Errorf("tenant: %.80q, want %q as in the key", i.Tenant, k.tenant)
	case !i.Phase.Valid():
		return storedInstance{}, fmt.Errorf("phase: %.80q, want one of %v", i.Phase, fleet.Phases())
	case i.Rev == 0:
		return storedInstance{}, errors.New("rev: 0, want at least 1")
	}
	if err := fleet.CheckName(i.Group); err != nil {
		return storedInstance{}, fmt.Errorf("group: %w", err)
	}
	return storedInstance{&i, unknown}, nil
}

// encode writes a record, with times in UTC, and keeps its unknown fields.
func (x *instances) encode(i storedInstance) ([]byte, error) {
	return record.Encode(i.InUTC(), i.unknown)
}

func (x *instances) header(i storedInstance) (epoch, rev uint64) { return i.Epoch, i.Rev }

// older is always false: the stored version of an instance counts.
func (x *instances) older(storedInstance, storedInstance) bool { return false }
func (x *instances) recalls() bool                             { return false }

// admit refuses a second record of an ID.
func (x *instances) admit(k instanceKey) error {
	if tenant, ok := x.tenants[k.id]; ok && tenant != k.tenant {
		return fmt.Errorf("id: %s already belongs to tenant %s", k.id, tenant)
	}
	return nil
}

func (x *instances) changed(k instanceKey, was, is *storedInstance) {
	x.trace(k, was, is)
	switch {
	case was == nil:
		x.tenants[k.id] = k.tenant
	case is == nil:
		delete(x.tenants, k.id)
	}
	if was == nil || is == nil {
		x.reorder(k, is != nil)
	}
	if was != nil && (is == nil || was.GroupKey() != is.GroupKey()) {
		x.leave(was.GroupKey(), k.id)
	}
	if is != nil {
		x.join(is.GroupKey(), is.Instance)
	}
}

// trace updates what the records show of their groups.
func (x *instances) trace(k instanceKey, was, is *storedInstance) {
	if is == nil {
		delete(x.made, k.id)
		return
	}
	x.madeBy[is.GroupKey()] = max(x.madeBy[is.GroupKey()], is.GroupRevision)
	switch term := x.term.Load(); {
	case was != nil:
	case is.Epoch == term:
		x.made[k.id] = true
	case is.Epoch < term && is.Phase.Active():
		x.found[is.GroupKey()]++
	}
}

// join adds the record of a group's instance, or replaces it.
func (x *instances) join(group fleet.GroupKey, i *fleet.Instance) {
	members := x.groups[group]
	at, found := position(members, i.ID)
	if found {
		members[at] = i
		return
	}
	x.groups[group] = slices.Insert(members, at, i)
}

func (x *instances) leave(group fleet.GroupKey, id fleet.InstanceID) {
	members := x.groups[group]
	if at, found := position(members, id); found {
		members = slices.Delete(members, at, at+1)
	}
	if len(members) == 0 {
		delete(x.groups, group)
		return
	}
	x.groups[group] = members
}

func position(members []*fleet.Instance, id fleet.InstanceID) (at int, found bool) {
	return slices.BinarySearchFunc(members, id, func(i *fleet.Instance, id fleet.InstanceID) int { return cmp.Compare(i.ID, id) })
}

func placeOf(keys []instanceKey, id fleet.InstanceID) (at int, found bool) {
	return slices.BinarySearchFunc(keys, id, func(k instanceKey, id fleet.InstanceID) int { return cmp.Compare(k.id, id) })
}

// reorder adds a key to the order, or removes it, which is cheaper than to sort all again.
func (x *instances) reorder(k instanceKey, there bool) {
	keys := x.order.Load()
	if keys == nil {
		return
	}
	at, found := placeOf(*keys, k.id)
	if found {
		*keys = slices.Delete(*keys, at, at+1)
	}
	if there {
		*keys = slices.Insert(*keys, at, k)
	}
}

// sorted returns the keys of all records, by ID. They are valid while the caller holds objects.mu.
func (x *instances) sorted() []instanceKey {
	keys := x.order.Load()
	if keys == nil {
		sorted := make([]instanceKey, 0, len(x.tenants))
		for _, id := range slices.Sorted(maps.Keys(x.tenants)) {
			sorted = append(sorted, instanceKey{x.tenants[id], id})
		}
		keys = &sorted
		x.order.Store(keys)
	}
	return *keys
}
