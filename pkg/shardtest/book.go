package shardtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/election"
)

// book is what the simulation knows for certain: every write that the store
// took, in order, and every act that began. It checks them against what must
// hold at every step. Safe for concurrent use.
type book struct {
	timeline *Timeline
	lives    func(fleet.InstanceID) bool // whether a machine of the instance runs, or will, in truth

	mu         sync.Mutex
	violations []string
	records    map[fleet.InstanceID]fleet.Instance
	left       map[fleet.InstanceID]time.Time // when an instance that had settled was no longer running
	gone       map[fleet.InstanceID]bool      // ids whose record was removed
	doomed     map[fleet.InstanceID]bool      // machines that were told they go, or said so
	attempted  map[fleet.InstanceID]bool      // whose create began
	keys       map[fleet.InstanceID]string    // the key that each nonce was spent for
	requests   map[string]fleet.InstanceID    // idempotency keys
	epochs     map[string]uint64              // by life
	holder     election.Record
	acted      uint64 // the highest epoch that began an act
	actor      string // whose
	promises   promises
	static     *config.Shard // what config/ holds, when that is valid
	applied    *config.Shard // what applied/ holds
	dynamic    config.Dynamic
	ruling     bool // the object for all tenants' groups rules
	wanted     map[fleet.GroupKey][]*want
	pace       pace
	failed     map[fleet.InstanceID]bool // on-demand instances that came to nothing
	ends       ends
	accepted   map[string]time.Time // removals of groups, by their names, and when a refresh accepted them last
}

func newBook(t *Timeline) *book {
	return &book{
		timeline: t, lives: func(fleet.InstanceID) bool { return false },
		records: map[fleet.InstanceID]fleet.Instance{}, left: map[fleet.InstanceID]time.Time{}, gone: map[fleet.InstanceID]bool{},
		doomed: map[fleet.InstanceID]bool{}, attempted: map[fleet.InstanceID]bool{}, keys: map[fleet.InstanceID]string{},
		requests: map[string]fleet.InstanceID{}, epochs: map[string]uint64{}, wanted: map[fleet.GroupKey][]*want{}, promises: newPromises(),
		pace: newPace(), failed: map[fleet.InstanceID]bool{}, accepted: map[string]time.Time{},
		ends: ends{evidences{}, map[fleet.InstanceID]time.Time{}},
	}
}

// violate notes that something happened which never may. The caller holds the lock.
func (b *book) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.timeline.Say("VIOLATION", "%s", text)
	b.violations = append(b.violations, text)
}

func (b *book) report(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.violate(format, args...)
}

func (b *book) found() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var named []string
	for _, v := range b.violations {
		named = append(named, b.timeline.Name(v))
	}
	return named
}

// wrote is told of every write that the store took.
func (b *book) wrote(key string, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kind, _, _ := strings.Cut(key, "/")
	switch kind {
	case "instance":
		b.wroteInstance(key, body)
	case "leader":
		b.wroteLeader(body)
	case "request":
		b.wroteRequest(key, body)
	case "config":
		if shard, err := config.Parse(body); err == nil {
			b.static = shard
			b.rewant()
		}
	case "applied":
		if shard, err := config.ParseAccepted(body); err == nil {
			b.judgeRemovals(b.applied, shard)
			b.applied = shard
			b.rewant()
		}
	case "groups":
		b.wroteGroups(key, body)
	}
}

// wroteGroups takes over what an object says of dynamic groups. The one for all tenants
// rules until it says that they have moved.
func (b *book) wroteGroups(key string, body []byte) {
	tenant, ofOne := strings.CutPrefix(key, "groups/"+shardID+"/")
	tenant = strings.TrimSuffix(tenant, ".jsonc")
	if !ofOne {
		d, err := config.ParseDynamic(body)
		if b.ruling = err == nil; b.ruling {
			b.dynamic = d
			b.rewant()
		}
		return
	}
	entries, err := config.ParseEntries(body)
	if err != nil || b.ruling {
		return
	}
	groups := maps.Clone(b.dynamic.Groups)
	if groups == nil {
		groups = map[string]map[string]config.Entry{}
	}
	groups[tenant] = entries.Dynamic(tenant).Groups[tenant]
	b.dynamic.Groups = groups
	b.rewant()
}

func (b *book) wroteLeader(body []byte) {
	var r election.Record
	if err := json.Unmarshal(body, &r); err != nil {
		b.violate("the election record can't be read: %v", err)
		return
	}
	life := lifeOf(r.Holder)
	switch {
	case r.Epoch < b.holder.Epoch:
		b.violate("the election record went back from epoch %d to %d", b.holder.Epoch, r.Epoch)
	case r.Released && !b.holder.Released:
		b.timeline.Say(life, "releases the lead of epoch %d", r.Epoch)
	case r.Epoch != b.holder.Epoch:
		b.timeline.Say(life, "takes the lead, epoch %d", r.Epoch)
	}
	b.holder = r
	b.epochs[life] = r.Epoch
}

// lifeOf is the life that a holder's name belongs to.
func lifeOf(holder string) string {
	life, _, _ := strings.Cut(holder, ".")
	return life
}

func (b *book) wroteRequest(key string, body []byte) {
	var request struct {
		ID fleet.InstanceID `json:"id"`
	}
	if err := json.Unmarshal(body, &request); err != nil || request.ID == "" {
		b.violate("%s does not name an instance: %s", key, body)
		return
	}
	if before, ok := b.requests[key]; ok && before != request.ID && !b.failed[before] {
		b.violate("%s was given to two instances: %s and %s", key, before, request.ID)
	}
	b.requests[key] = request.ID
}

// deleted is told of every deletion.
func (b *book) deleted(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name, ok := strings.CutPrefix(key, "instance/"+shardID+"/")
	if !ok {
		return
	}
	_, name, _ = strings.Cut(strings.TrimSuffix(name, ".json"), ".")
	id, err := fleet.ParseStorageKey(name)
	if err != nil {
		return
	}
	if i, known := b.records[id]; known && i.Phase != fleet.Deleted {
		b.violate("the record of %s was removed while it is %s", id, i.Phase)
	}
	b.gone[id] = true
	delete(b.records, id)
}

func (b *book) doom(id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doomed[id] = true
}

// instances are the records that there are, in the order of their ids.
func (b *book) instances() []fleet.Instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []fleet.Instance
	for _, id := range slices.Sorted(maps.Keys(b.records)) {
		all = append(all, b.records[id])
	}
	return all
}

func (b *book) leader() (life string, released bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return lifeOf(b.holder.Holder), b.holder.Released
}
