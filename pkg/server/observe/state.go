// Package observe holds what a term has observed of its shard's instances beyond their
// records: what the provider answered about their VMs, what their agents reported, and
// how the steps on them went. From these it concludes whether a VM is gone or has to be
// polled, and whether an instance is lost, has settled or failed before, and it joins all
// of this with the records for a decision.
//
// Answers, reports and times go in, news and views come out. It uses no clock, starts
// nothing, and calls nothing but the records, which answer from memory. Nothing is
// durable: each term observes again.
package observe

import (
	"net/netip"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Records are the shard's records, tombstones included. They are read under the lock of a
// State, so they must answer from memory and never call back. Safe for concurrent use.
type Records interface {
	Instances() []fleet.Instance
	// Members returns the records of one group, preferably sorted by ID; they are never changed in place.
	// The result reuses room.
	Members(key fleet.GroupKey, room []*fleet.Instance) []*fleet.Instance
	Get(id fleet.InstanceID) (fleet.Instance, bool)
}

// State is the observed state of a shard's instances in one term. It is safe for concurrent
// use, and no method waits for anything but its lock.
type State struct {
	records    Records
	consistent bool      // the provider's reads are strongly consistent
	began      time.Time // of the term

	mu        sync.Mutex
	instances map[fleet.InstanceID]*instance
	groups    map[fleet.GroupKey]*attempts // of edits of the groups themselves
	absent    map[fleet.InstanceID]bool    // instances whose VM is absent
	members   []*fleet.Instance            // buffer of Join
	named     fleet.Holders[string]        // by DNS name of the VM, without VMs that ended
	addressed fleet.Holders[netip.Addr]    // by address of the VM, likewise
}

// New returns the State of a term that began at the given time. consistent means that the
// provider's reads are strongly consistent.
func New(records Records, consistent bool, began time.Time) *State {
	return &State{
		records: records, consistent: consistent, began: began, instances: map[fleet.InstanceID]*instance{},
		groups: map[fleet.GroupKey]*attempts{}, absent: map[fleet.InstanceID]bool{},
		named: fleet.Holders[string]{}, addressed: fleet.Holders[netip.Addr]{},
	}
}

// instance is what is known of one instance beyond its record.
type instance struct {
	steps      attempts
	health     plan.Health
	knownSince time.Time // when a pass first saw the record; zero: not yet

	vm    plan.VM
	state provider.State // as reported by the provider; empty: not yet
	why   string         // the provider's reason for the state, if any
	asOf  time.Time      // when the call of the last answer was sent
	shown bool           // the provider has returned the VM
	ended bool           // the provider reported a state from which the VM will not work again

	missedAt time.Time // when the first of the consecutive calls that did not find the VM was sent; zero: none
	misses   int       // how many of these calls there were
	askAt    time.Time // when to poll again to confirm that; zero: not needed

	unanswered bool // polling the VM because of a list failed, and has not succeeded since
	unlisted   bool // that list did not show the VM

	addresses []netip.Addr // as last shown by the provider; never modified in place
	names     []string     // in the provider's DNS, likewise

	describedAt time.Time // see Described

	attemptedAt    time.Time // this term's last create
	askedAt        time.Time // of this term's last create that was not definitely refused; while throttled, of the last pass
	recordDoubtful bool      // see DoubtRecord
	retryAt        time.Time // when to retry the create or delete
	refusedFor     error     // this term's last definite refusal of the create; nil: none since one was accepted
	standsIn       bool      // replaces an instance that had settled
	judged         bool      // counted as settled or failed already
	loss           *loss

	refused   string    // why the agent last could not register; empty: it was not refused in this term
	refusedAt time.Time // when it was first refused for that
}

// instance returns what is known of an instance, creating the entry if needed. The caller holds
// the lock.
func (s *State) instance(id fleet.InstanceID) *instance {
	i := s.instances[id]
	if i == nil {
		i = &instance{}
		s.instances[id] = i
	}
	return i
}

// with calls use with what is known of an instance, under the lock. use must not lock.
func (s *State) with(id fleet.InstanceID, use func(*instance)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	use(s.instance(id))
}

// Snapshot is what is known of one instance at one moment.
type Snapshot struct {
	VM        plan.VM
	Why       string       // the provider's reason for the VM's state, if any
	Shown     bool         // the provider has returned the VM in this term
	Absent    bool         // the VM was not found, or not listed while polling it failed, and was never seen dead
	Doubtful  bool         // the VM has to be polled: its agent is not connected or is shutting down, or the VM is absent
	MissedAt  time.Time    // when the first of the consecutive calls that did not find the VM was sent; zero: the last one found it
	Misses    int          // how many of these there were
	ConfirmAt time.Time    // when to poll the VM again, since one answer that did not find it is not enough; zero: not needed
	Names     []string     // of the VM in the provider's DNS, as last shown; must not be modified
	Addresses []netip.Addr // of the VM, as last shown; must not be modified

	LastError      string // of the last step; empty if it succeeded
	Refused        string // why the agent last could not register; empty if it was not refused in this term
	RecordDoubtful bool   // see DoubtRecord
}

// Get returns what is known of an instance. If that is nothing, only Doubtful is set.
func (s *State) Get(id fleet.InstanceID) Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.instances[id]
	if i == nil {
		i = &instance{}
	}
	return Snapshot{
		VM: i.vm, Why: i.why, Shown: i.shown, Absent: i.absent(), Doubtful: i.doubtful(), ConfirmAt: i.askAt,
		Names: i.names, Addresses: i.addresses,
		MissedAt: i.missedAt, Misses: i.misses, LastError: i.steps.last, RecordDoubtful: i.recordDoubtful, Refused: i.refused,
	}
}

// Forget drops what is known of instances without a record, except those that are being
// created, and the state of group edits that are no longer repeated.
func (s *State) Forget(launching map[fleet.InstanceID]bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetEdits(now)
	for id, i := range s.instances {
		if _, ok := s.records.Get(id); ok {
			continue
		}
		i.knownSince = time.Time{} // a record that comes back is new
		if !i.steps.busy && !i.health.Connected && !launching[id] {
			s.rename(id, i.naming(), naming{})
			delete(s.instances, id)
			delete(s.absent, id)
		}
	}
}

// Entries returns the number of instances, edited groups and absent VMs that it knows of.
func (s *State) Entries() (instances, groups, absent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.instances), len(s.groups), len(s.absent)
}
