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

// book records every write to the store, in order, and every provider call, and checks
// them against the invariants. Safe for concurrent use.
type book struct {
	timeline *Timeline
	lives    func(fleet.InstanceID) bool // whether a machine of the instance runs, or will
	unlisted func(fleet.Instance) bool   // whether a leader's last listing may lack the record
	lags     bool                        // the provider's reads may not show a new machine

	mu         sync.Mutex
	violations []string
	records    map[fleet.InstanceID]fleet.Instance
	landed     map[fleet.InstanceID]time.Time      // when an instance's first record was written
	left       map[fleet.InstanceID]time.Time      // when a settled instance stopped running
	past       map[fleet.InstanceID]fleet.Instance // records that were removed, as they were last
	doomed     map[fleet.InstanceID]bool           // machines with a termination notice, or shutting down
	attempted  map[fleet.InstanceID]bool           // instances whose create began
	keys       map[fleet.InstanceID]string         // by nonce: the public key that consumed it
	requests   map[string]fleet.InstanceID         // idempotency keys
	epochs     map[string]uint64                   // by life
	holder     election.Record
	acted      uint64 // the highest epoch that called the provider
	actor      string // the life of acted
	promises   promises
	static     *config.Shard       // content of config/, if valid
	applied    *config.Shard       // content of applied/
	groups     config.GroupRecords // as servers wrote them last
	hands      *hands
	texts      *texts
	shrinks    *shrinks
	wanted     map[fleet.GroupKey][]*want
	pace       pace
	failed     map[fleet.InstanceID]bool // on-demand instances that failed
	wall       wall
	drains     map[fleet.InstanceID]uint64 // the epoch that began to drain an instance
	acking     map[fleet.InstanceID]bool   // drains whose acknowledgement was sent
	ends       ends
}

func newBook(t *Timeline) *book {
	b := &book{
		timeline: t, lives: func(fleet.InstanceID) bool { return false }, unlisted: func(fleet.Instance) bool { return false },
		records: map[fleet.InstanceID]fleet.Instance{}, landed: map[fleet.InstanceID]time.Time{},
		left: map[fleet.InstanceID]time.Time{}, past: map[fleet.InstanceID]fleet.Instance{},
		doomed: map[fleet.InstanceID]bool{}, attempted: map[fleet.InstanceID]bool{}, keys: map[fleet.InstanceID]string{},
		requests: map[string]fleet.InstanceID{}, epochs: map[string]uint64{}, wanted: map[fleet.GroupKey][]*want{}, promises: newPromises(),
		pace: newPace(), failed: map[fleet.InstanceID]bool{}, groups: config.GroupRecords{},
		drains: map[fleet.InstanceID]uint64{}, acking: map[fleet.InstanceID]bool{}, wall: wall{terms: map[uint64]time.Time{}},
		ends: ends{evidences{}, map[fleet.InstanceID]time.Time{}},
	}
	b.hands, b.texts, b.shrinks = newHands(b), newTexts(b), newShrinks(b)
	return b
}

// violate records a violated invariant. The caller holds the lock.
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

// wrote checks a write to the store that was sent at a time, and took effect now.
func (b *book) wrote(key string, body []byte, sent time.Time) {
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
		b.texts.setConfig(body)
	case "applied":
		b.texts.accept(body, sent)
	case "groups":
		b.wroteGroup(groupOf(key), body)
	}
}

// wroteGroup checks and stores a group's record as written by a server.
func (b *book) wroteGroup(key fleet.GroupKey, body []byte) {
	r, err := config.DecodeGroup(body)
	if err != nil {
		b.violate("the record of group %s can't be read: %v", key, err)
		return
	}
	was := b.groups[key]
	if back := r.Epoch < was.Epoch || r.Rev <= was.Rev || r.Revision < was.Revision; back && !b.hands.touched[key] {
		b.violate("the record of group %s went back from epoch %d, rev %d, revision %d to %d, %d, %d",
			key, was.Epoch, was.Rev, was.Revision, r.Epoch, r.Rev, r.Revision)
	}
	b.shrinks.judgeRecord(key, r)
	b.hands.wrote(key, body, was.Missing)
	b.groups = maps.Clone(b.groups) // shared
	b.groups[key] = r
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
		b.wall.terms[r.Epoch] = time.Now()
		b.hands.loosen()
	}
	b.holder = r
	b.epochs[life] = r.Epoch
}

// lifeOf returns the life of a holder's name.
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

// deleted checks a deletion in the store.
func (b *book) deleted(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if group := groupOf(key); strings.HasPrefix(key, groupsPrefix) && b.groups[group].DeletedAt == nil {
		b.violate("the record of group %s was removed, but is no tombstone", group)
	}
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
	b.past[id] = b.records[id]
	delete(b.records, id)
}

func (b *book) doom(id fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doomed[id] = true
}

// instances returns the instance records, sorted by id.
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
