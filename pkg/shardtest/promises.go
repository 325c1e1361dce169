package shardtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// absent is the size of a group that was deleted.
const absent = -1

// promises are what callers were told, and may hold the shard to.
type promises struct {
	// sizes are those that a group may have: the one last acknowledged, and those
	// of calls whose outcome nobody knows. No entry: nobody asked for another than
	// the config's.
	sizes     map[fleet.GroupKey]map[int]bool
	instances map[string]fleet.InstanceID // by idempotency key
	// Of these it was said that there is none.
	absentIDs  map[fleet.InstanceID]bool
	absentKeys map[string]bool // until a creation is asked for again
}

func newPromises() promises {
	return promises{
		sizes: map[fleet.GroupKey]map[int]bool{}, instances: map[string]fleet.InstanceID{},
		absentIDs: map[fleet.InstanceID]bool{}, absentKeys: map[string]bool{},
	}
}

// configured stands for whatever size the config says.
const configured = -2

// promiseSize notes what came of a call that sets the size of a group.
func (b *book) promiseSize(key fleet.GroupKey, size int, became outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	may := b.promises.sizes[key]
	if may == nil {
		may = map[int]bool{configured: true, absent: true}
		b.promises.sizes[key] = may
	}
	switch became {
	case done:
		clear(may)
		may[size] = true
		b.judgeStored(key, size)
	case unknown:
		may[size] = true
	case missing: // no call before this one has an effect any more
		clear(may)
		may[configured], may[absent] = true, true
		if e, ok := b.dynamic.Entry(key); ok && !e.Removed {
			b.violate("group %s is said not to be there, and is stored", key)
		}
	case refused:
	}
}

// promiseAbsence notes that a caller was told that there is no such instance: not of the
// key, if that is what it named.
func (b *book) promiseAbsence(key string, id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if key != "" {
		b.promises.absentKeys[key] = true
		return
	}
	b.promises.absentIDs[id] = true
	if i, ok := b.records[id]; ok && i.Phase.Active() {
		b.violate("%s is said not to be there, and its record is %s", id, i.Phase)
	}
}

// wantKey notes that a creation with a key is about to be asked for.
func (b *book) wantKey(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.promises.absentKeys, key)
}

// judgeAbsence refuses a first record of what was said not to be there.
func (b *book) judgeAbsence(i fleet.Instance) {
	switch {
	case b.promises.absentIDs[i.ID]:
		b.violate("%s was said not to be there, and comes", i.ID)
	case i.RequestKey != "" && b.promises.absentKeys[i.RequestKey]:
		b.violate("an instance of key %s was said not to be there, and %s comes", i.RequestKey, i.ID)
	}
}

// judgeStored refuses an acknowledged size that the store does not have.
func (b *book) judgeStored(key fleet.GroupKey, size int) {
	e, ok := b.dynamic.Entry(key)
	if size == absent {
		if ok && !e.Removed {
			b.violate("the deletion of group %s was acknowledged, and is not stored", key)
		}
		return
	}
	if !ok || e.Size == nil || *e.Size != size {
		b.violate("size %d of group %s was acknowledged, and is not stored", size, key)
	}
}

// promiseInstance notes that a key was answered with an instance.
func (b *book) promiseInstance(key string, id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, ok := b.promises.instances[key]; ok && before != id && !b.failed[before] {
		b.violate("key %s was answered with %s, and now with %s", key, before, id)
	}
	b.promises.instances[key] = id
	if _, ok := b.records[id]; !ok && !b.gone[id] {
		b.violate("%s was acknowledged, and there is no record of it", id)
	}
}

// instanceOf is the instance that a key was answered with; empty: none yet.
func (b *book) instanceOf(key string) fleet.InstanceID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.promises.instances[key]
}

// promiseRemoval notes that the removal of an instance was acknowledged.
func (b *book) promiseRemoval(id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, ok := b.records[id]; ok && i.RemovalAskedAt == nil && i.Phase.Active() {
		b.violate("the removal of %s was acknowledged, and is not stored", id)
	}
}

// promiseAck notes that somebody's word of an empty instance was taken.
func (b *book) promiseAck(id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, ok := b.records[id]; ok && i.Phase == fleet.Draining && (i.Drain == nil || i.Drain.AckedAt == nil) {
		b.violate("the acknowledgement of %s was taken, and is not stored", id)
	}
}

// judgeSizes compares the groups that a leader shows with what was promised.
func (b *book) judgeSizes(groups []*nstancev1.GroupStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	shown := map[fleet.GroupKey]int{}
	for _, g := range groups {
		shown[fleet.GroupKey{Tenant: g.GetTenant(), Name: g.GetKey()}] = int(g.GetSize())
	}
	for key, may := range b.promises.sizes {
		size, ok := shown[key]
		if !ok {
			size = absent
		}
		if may[size] || may[configured] && size == b.configSize(key) {
			continue
		}
		b.violate("group %s has size %s, and what was acknowledged leaves %s", key, sizeText(size), sizeTexts(may))
	}
	b.judgeKnown(shown)
}

// judgeKnown refuses sizes of a settled shard that are not those of the store: the
// leader missed what became of a write, and the next one would act on it.
func (b *book) judgeKnown(shown map[fleet.GroupKey]int) {
	if b.applied == nil {
		return
	}
	stored, _ := b.applied.Resolve(b.dynamic)
	for key, g := range stored {
		size, ok := shown[key]
		if !ok {
			size = absent
		}
		if size != g.Size {
			b.violate("the store gives group %s size %d, and its leader knows of %s", key, g.Size, sizeText(size))
		}
	}
}

// configSize is the size that the config alone gives a group.
func (b *book) configSize(key fleet.GroupKey) int {
	if b.static != nil {
		if g, ok := b.static.Static(key); ok && g.Size != nil {
			return *g.Size
		}
	}
	return absent
}

func sizeText(size int) string {
	switch size {
	case absent:
		return "none"
	case configured:
		return "the config's"
	default:
		return fmt.Sprint(size)
	}
}

func sizeTexts(may map[int]bool) (texts []string) {
	for _, size := range slices.Sorted(maps.Keys(may)) {
		texts = append(texts, sizeText(size))
	}
	return texts
}
