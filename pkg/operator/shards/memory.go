package shards

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// memory is what is known of one shard. Its methods that change something return the
// events to send, once its lock is free again.
type memory struct {
	name  string
	now   func() time.Time
	hurt  chan struct{} // has the next poll come at once
	doubt chan struct{} // has the streams begin anew

	mu        sync.RWMutex
	addrs     []string
	term      uint64 // of those who follow the shard; what an earlier one says is not heard
	tick      uint64
	groups    table[*nstancev1.GroupStatus]
	instances table[*nstancev1.InstanceStatus]
	missing   missing
	streams   map[string]*stream // by what they are of
	problems  problems
	troubles  map[string]trouble // by what is in trouble
	answered  bool               // at least once
	connected uint64             // the tick of the last snapshot's end: some stream had begun anew
	state     State              // as it was told last

	kind, region, zone string // of the provider
}

// stream is one that the truth is told by.
type stream struct {
	began  uint64 // the tick before the first word of the snapshot to come
	stands bool
	whole  bool // it has told all, at least once
}

// trouble is why a shard can't be reached.
type trouble struct {
	err error
	// refused: the leader is there and answers so, until it answers otherwise.
	refused bool
}

// ofCalls is what is in trouble when calls are; streams are named by what they are of.
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

// move gives the shard these addresses. If they are others, those who follow it at the
// ones before are not heard any more.
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

// shard is where the shard is now, in which term, and after which tick.
func (m *memory) shard() (s client.Shard, term, tick uint64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return client.Shard{ID: m.name, Addrs: m.addrs}, m.term, m.tick
}

// forget has nobody be heard any more, and tells that everything is on its way out.
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

// everything is an event for all there is.
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

// told makes the state anew, with an event when it is another one.
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
	for _, refused := range []bool{true, false} { // what will not mend by itself comes first
		for _, of := range []string{ofCalls, client.WatchGroups, client.WatchAllInstances} {
			if t, ok := m.troubles[of]; ok && t.refused == refused {
				return t.err
			}
		}
	}
	return nil
}

// works notes that the leader has answered, a call or in a stream. A stream that goes on
// says nothing of calls: those of a leader may hang, for its storage does, while it goes
// on telling, and who calls it again and again stands still for all shards.
func (m *memory) works(of string) {
	m.answered = true
	for about, t := range m.troubles {
		if about == of || (!t.refused && about != ofCalls) {
			delete(m.troubles, about)
		}
	}
}

// anew notes that a stream has begun anew, at whoever leads by now: what was wrong with
// calls before that says nothing any more, until the next one.
func (m *memory) anew() {
	m.connected = m.tick
	if !m.troubles[ofCalls].refused {
		delete(m.troubles, ofCalls)
	}
}

// like reports whether two states tell the same. An error is known by its words.
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

// wake has the next poll come at once.
func (m *memory) wake() {
	select {
	case m.hurt <- struct{}{}:
	default: // it will
	}
}

// problems are those that the stream has told of since it began, and whose end it has
// not: whoever comes later is to hear of them too.
type problems []*nstancev1.WatchErrorsResponse

// maxProblems bounds how many are kept. Many have no end.
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
