package shards

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// memory is the known state of one shard. Mutating methods return the events to send after the
// lock is released.
type memory struct {
	name  string
	now   func() time.Time
	hurt  chan struct{} // triggers the next poll
	doubt chan struct{} // restarts the streams

	mu        sync.RWMutex
	addrs     []string
	term      uint64 // the followers' term; events of earlier terms are ignored
	tick      uint64
	groups    table[*nstancev1.GroupStatus]
	instances table[*nstancev1.InstanceStatus]
	missing   missing
	streams   map[string]*stream // by kind
	problems  problems
	troubles  map[string]trouble // by source: ofCalls, or a stream's kind
	answered  bool               // at least once
	connected uint64             // the tick when the last snapshot ended
	state     State              // as last sent

	kind, region, zone string // of the provider
}

// stream is the state of one of the shard's streams.
type stream struct {
	began  uint64 // the tick before the snapshot
	stands bool
	whole  bool // it has sent a complete snapshot
}

// trouble is why a shard can't be reached.
type trouble struct {
	err error
	// refused: the leader answers with an error.
	refused bool
}

// ofCalls is the source of troubles of calls; for streams it is their kind.
const ofCalls = "calls"

func newMemory(s client.Shard, now func() time.Time) *memory {
	return &memory{
		name: s.ID, now: now, hurt: make(chan struct{}, 1), doubt: make(chan struct{}, 1), addrs: slices.Clone(s.Addrs),
		groups: newTable[*nstancev1.GroupStatus](), instances: newTable[*nstancev1.InstanceStatus](),
		missing:  newMissing(),
		streams:  map[string]*stream{client.WatchGroups: {}, client.WatchAllInstances: {}},
		problems: problems{}, troubles: map[string]trouble{}, state: State{Since: now()},
	}
}

// move sets the shard's addresses. If they differ, followers of the previous addresses are
// ignored from then on.
func (m *memory) move(addrs []string) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Equal(m.addrs, addrs) {
		return nil
	}
	m.addrs = slices.Clone(addrs)
	m.end()
	m.tick++
	m.anew()
	return m.told()
}

// shard returns the shard's addresses, the term, and the tick.
func (m *memory) shard() (s client.Shard, term, tick uint64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return client.Shard{ID: m.name, Addrs: m.addrs}, m.term, m.tick
}

// forget ends the current term, and returns events for everything, which is about to go.
func (m *memory) forget() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end()
	m.problems = nil
	return m.everything()
}

func (m *memory) end() {
	m.term++
	for _, s := range m.streams {
		s.stands = false
	}
}

// everything returns an event for each known object.
func (m *memory) everything() []Event {
	events := []Event{{Of: OfShard, Shard: m.name}}
	for key := range m.groups.rows {
		events = append(events, Event{Of: OfGroup, Shard: m.name, Group: key})
	}
	for _, r := range m.instances.rows {
		events = append(events, m.ofInstance(r.value))
	}
	for _, p := range m.problems {
		events = append(events, m.ofProblem(p))
	}
	slices.SortFunc(events, func(a, b Event) int {
		return strings.Compare(a.Of+"/"+a.Group+"/"+a.Instance, b.Of+"/"+b.Group+"/"+b.Instance)
	})
	return events
}

func (m *memory) ofInstance(i *nstancev1.InstanceStatus) Event {
	return Event{Of: OfInstance, Shard: m.name, Group: i.GetGroup(), Instance: i.GetId()}
}

func (m *memory) ofProblem(p *nstancev1.WatchErrorsResponse) Event {
	return Event{Of: OfProblem, Shard: m.name, Group: p.GetGroup(), Instance: p.GetInstanceId(), Problem: p}
}

// told updates the state, with an event if it changed.
func (m *memory) told() []Event {
	before := m.state
	groups, instances := m.streams[client.WatchGroups], m.streams[client.WatchAllInstances]
	m.state.Err = m.err()
	m.state.Reachable = m.answered && m.state.Err == nil
	if m.state.Reachable != before.Reachable {
		m.state.Since = m.now()
	}
	m.state.Known = groups.whole && instances.whole
	m.state.Synced = m.state.Known && groups.stands && instances.stands
	if m.state.Synced && !before.Synced {
		m.state.LastSync = m.now()
	}
	m.state.ProviderKind, m.state.Region, m.state.Zone = m.kind, m.region, m.zone
	if m.state.like(before) {
		return nil
	}
	return []Event{{Of: OfShard, Shard: m.name}}
}

func (m *memory) err() error {
	for _, refused := range []bool{true, false} { // lasting problems first
		for _, of := range []string{ofCalls, client.WatchGroups, client.WatchAllInstances} {
			if t, ok := m.troubles[of]; ok && t.refused == refused {
				return t.err
			}
		}
	}
	return nil
}

// works records that the leader has answered a call or on a stream. A working stream says
// nothing about calls: with storage trouble a leader's calls may hang while its streams go on,
// and repeating the calls would block the workers of all shards.
func (m *memory) works(of string) {
	m.answered = true
	for about, t := range m.troubles {
		if about == of || (!t.refused && about != ofCalls) {
			delete(m.troubles, about)
		}
	}
}

// anew records that a stream has restarted at the present leader: earlier problems with calls
// are void.
func (m *memory) anew() {
	m.connected = m.tick
	if !m.troubles[ofCalls].refused {
		delete(m.troubles, ofCalls)
	}
}

// like reports whether two states are equal. Errors are compared by text.
func (s State) like(o State) bool {
	words := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	same := words(s.Err) == words(o.Err)
	s.Err, o.Err = nil, nil
	return same && s == o
}

// wake triggers the next poll at once.
func (m *memory) wake() {
	select {
	case m.hurt <- struct{}{}:
	default: // already triggered
	}
}

// problems are those that the stream has reported since it began and not ended, for later
// subscribers.
type problems []*nstancev1.WatchErrorsResponse

// maxProblems bounds them. Many never end.
const maxProblems = 256

func (p problems) with(one *nstancev1.WatchErrorsResponse) problems {
	p = slices.DeleteFunc(p, func(o *nstancev1.WatchErrorsResponse) bool {
		return o.GetReason() == one.GetReason() && o.GetGroup() == one.GetGroup() && o.GetInstanceId() == one.GetInstanceId()
	})
	if one.GetOver() {
		return p
	}
	return append(p[max(0, len(p)+1-maxProblems):], one)
}
