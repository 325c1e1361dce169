package shardtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// absent is the size of a deleted group.
const absent = -1

// promises are the answers that callers got and may rely on.
type promises struct {
	// sizes are the possible sizes of a group: the last acknowledged one, and those of calls
	// with an unknown outcome. No entry means the config's size.
	sizes     map[fleet.GroupKey]map[int]bool
	instances map[string]fleet.InstanceID // by idempotency key
	// Answered as not found.
	absentIDs  map[fleet.InstanceID]bool
	absentKeys map[string]bool // until the next creation with the key
}

func newPromises() promises {
	return promises{
		sizes: map[fleet.GroupKey]map[int]bool{}, instances: map[string]fleet.InstanceID{},
		absentIDs: map[fleet.InstanceID]bool{}, absentKeys: map[string]bool{},
	}
}

// configured means the size in the config, anySize any size.
const (
	configured = -2
	anySize    = -3
)

// promiseSize records the outcome of a call that sets the size of a group.
func (b *book) promiseSize(key fleet.GroupKey, size int, became callOutcome) {
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
		if _, left := b.hands.left[key]; !left {
			delete(b.hands.touched, key)
		}
	case unknown:
		may[size] = true
	case missing: // earlier calls have no effect any more
		clear(may)
		may[configured], may[absent] = true, true
		if r := b.groups[key]; r.Exists() && !r.Removed && !b.hands.touched[key] {
			b.violate("group %s was answered as not found, but is stored", key)
		}
	case refused:
	}
}

// promiseAbsence records that a caller was told that there is no instance with the id or, if it
// named one, with the key.
func (b *book) promiseAbsence(key string, id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if key != "" {
		b.promises.absentKeys[key] = true
		return
	}
	b.promises.absentIDs[id] = true
	if i, ok := b.records[id]; ok && i.Phase.Active() {
		b.violate("%s was answered as not found, but its record is %s", id, i.Phase)
	}
}

// wantKey records that a creation with a key is about to be requested.
func (b *book) wantKey(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.promises.absentKeys, key)
}

// judgeAbsence checks that a new record was not answered as not found before.
func (b *book) judgeAbsence(i fleet.Instance) {
	switch {
	case b.promises.absentIDs[i.ID]:
		b.violate("%s was answered as not found, and then created", i.ID)
	case i.RequestKey != "" && b.promises.absentKeys[i.RequestKey]:
		b.violate("key %s was answered as not found, and then %s was created", i.RequestKey, i.ID)
	}
}

// judgeStored checks that an acknowledged size is stored.
func (b *book) judgeStored(key fleet.GroupKey, size int) {
	r := b.groups[key]
	if size == absent {
		if r.Exists() && !r.Removed {
			b.violate("the deletion of group %s was acknowledged, but is not stored", key)
		}
		return
	}
	if !r.Exists() || r.Size == nil || *r.Size != size {
		b.violate("size %d of group %s was acknowledged, but is not stored", size, key)
	}
}

// promiseInstance records that a key was answered with an instance.
func (b *book) promiseInstance(key string, id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, ok := b.promises.instances[key]; ok && before != id && !b.failed[before] {
		b.violate("key %s was answered with %s, and now with %s", key, before, id)
	}
	b.promises.instances[key] = id
	_, is := b.records[id]
	if _, was := b.past[id]; !is && !was {
		b.violate("%s was acknowledged, but has no record", id)
	}
}

// instanceOf returns the instance that a key was answered with; empty if there is none yet.
func (b *book) instanceOf(key string) fleet.InstanceID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.promises.instances[key]
}

// promiseRemoval records that the removal of an instance was acknowledged.
func (b *book) promiseRemoval(id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, ok := b.records[id]; ok && i.RemovalAskedAt == nil && i.Phase.Active() {
		b.violate("the removal of %s was acknowledged, but is not stored", id)
	}
}

// noteAck records that the acknowledgement of a drain is sent.
func noteAck(b *book, id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acking[id] = true
}

// promiseAck records that the acknowledgement of a drain was accepted.
func (b *book) promiseAck(id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, ok := b.records[id]; ok && i.Phase == fleet.Draining && (i.Drain == nil || i.Drain.AckedAt == nil) {
		b.violate("the drain acknowledgement of %s was accepted, but is not stored", id)
	}
}

// judgeSizes checks the groups that a leader shows against the promised sizes.
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
		if may[size] || may[anySize] || may[configured] && size == b.configSize(key) {
			continue
		}
		b.violate("group %s has size %s: want one of %s by the acknowledged calls", key, sizeText(size), sizeTexts(may))
	}
	b.judgeKnown(shown)
}

// judgeKnown checks that a settled leader's sizes are those of the store. Otherwise it missed
// the outcome of a write, and the next leader would act differently.
func (b *book) judgeKnown(shown map[fleet.GroupKey]int) {
	if b.applied == nil {
		return
	}
	stored, _ := b.applied.Resolve(b.groups)
	for key, g := range stored {
		size, ok := shown[key]
		if !ok {
			size = absent
		}
		if size != g.Size && !b.hands.touched[key] {
			b.violate("group %s has size %d in the store, but its leader has %s", key, g.Size, sizeText(size))
		}
	}
}

// configSize returns the size of a group in the config alone.
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
	case anySize:
		return "any"
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
