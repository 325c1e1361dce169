package shards

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// This file is how what a shard says becomes what is known of it.

// hear takes what a stream says to those who follow the shard in a term.
func (m *memory) hear(term uint64, e client.Event) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term != m.term {
		return nil
	}
	m.tick++
	if e.Of == client.WatchProblems {
		return m.problem(e)
	}
	var events []Event
	switch e.Kind {
	case client.Lost:
		m.lost(e.Of, e.Err)
		return m.told()
	case client.Synced:
		m.anew()
		events = m.synced(e)
	case client.Changed:
		events = m.changed(e)
	case client.Gone:
		events = m.gone(e)
	}
	m.works(e.Of)
	return append(events, m.told()...)
}

// begin has the streams begin anew. What is known stays until they have told all.
func (m *memory) begin(term uint64) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term != m.term {
		return nil
	}
	m.tick++
	m.problems = nil
	select {
	case <-m.doubt: // they do begin anew
	default:
	}
	for _, s := range m.streams {
		s.began, s.stands = m.tick, false
	}
	return m.told()
}

// ended notes that all streams have ended, for what no repetition by themselves mends.
func (m *memory) ended(term uint64, err error) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term != m.term {
		return nil
	}
	m.tick++
	for of := range m.streams {
		m.lost(of, err)
	}
	return m.told()
}

func (m *memory) lost(of string, err error) {
	s := m.streams[of]
	s.began, s.stands = m.tick, false
	m.troubles[of] = trouble{err: err, refused: !client.Transient(err) && answered(err)}
}

// synced ends a snapshot. The client tells what is gone as far as its stream knew of
// it; not of tombstones, nor of what was known before that stream began.
func (m *memory) synced(e client.Event) (events []Event) {
	s := m.streams[e.Of]
	switch {
	case e.Resumed:
	case e.Of == client.WatchGroups:
		for _, g := range m.groups.dropUntold(s.began, m.tick) {
			events = append(events, Event{Of: OfGroup, Shard: m.name, Group: g.GetKey()})
		}
	default:
		for _, i := range m.instances.dropUntold(s.began, m.tick) {
			events = append(events, m.ofInstance(i))
		}
		events = append(events, m.renew()...)
	}
	// A stream that follows a leader's address to another server begins anew without
	// being lost: then all of this counts as its snapshot.
	s.began, s.stands, s.whole = m.tick, true, true
	if m.state.Synced {
		m.state.LastSync = m.now()
	}
	return events
}

// renew has what a whole snapshot of instances says count, whatever was answered before
// it: it comes from another term. That one's bucket may have been put back, and then a
// phase, an etag and an id that was not there come again. What is gone from memory by it
// went by dropUntold, on the shard's own word.
func (m *memory) renew() (events []Event) {
	for _, g := range m.groups.renew(sameMessage) {
		events = append(events, Event{Of: OfGroup, Shard: m.name, Group: g.GetKey()})
	}
	for _, i := range m.instances.renew(sameInstance) {
		events = append(events, m.ofInstance(i))
	}
	clear(m.missing.never)
	return events
}

func (m *memory) changed(e client.Event) []Event {
	if e.Of == client.WatchGroups {
		if m.groups.tell(e.Key, e.Group, m.tick, sameMessage) {
			return []Event{{Of: OfGroup, Shard: m.name, Group: e.Key}}
		}
	} else if m.instances.tell(e.Key, e.Instance, m.tick, sameInstance) {
		return []Event{m.ofInstance(e.Instance)}
	}
	return nil
}

func (m *memory) gone(e client.Event) []Event {
	if e.Of == client.WatchGroups {
		if m.groups.drop(e.Key, m.tick) {
			return []Event{{Of: OfGroup, Shard: m.name, Group: e.Key}}
		}
		return nil
	}
	r := m.instances.rows[e.Key]
	m.instances.drop(e.Key, m.tick)
	if r == nil {
		return nil
	}
	return []Event{m.ofInstance(r.value)}
}

func (m *memory) problem(e client.Event) []Event {
	switch e.Kind {
	case client.Lost:
		m.problems = nil // the next stream tells of those that last
		return nil
	case client.Changed:
		m.problems = m.problems.with(e.Problem)
		m.works(e.Of)
		return append([]Event{m.ofProblem(e.Problem)}, m.told()...)
	default:
		return nil
	}
}

// note takes how a call went that began after a tick.
func (m *memory) note(asked uint64, err error) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch code := status.Code(err); {
	case code == codes.PermissionDenied || code == codes.Unauthenticated:
		m.troubles[ofCalls] = trouble{err: err, refused: true}
	case answered(err):
		m.works(ofCalls)
	case code == codes.Canceled: // by its caller, or since the shard moved
	case asked < m.connected: // another one may lead by now
	default:
		m.troubles[ofCalls] = trouble{err: err}
	}
	return m.told()
}

// answered reports whether a leader has, be it with a refusal.
func answered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return false
	default:
		return true
	}
}

// listGroups takes the answer to a question after the groups that was asked after a
// tick. No group leaves with it, see table.list.
func (m *memory) listGroups(term, asked uint64, answer *nstancev1.ListGroupsResponse) (events []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term != m.term {
		return nil
	}
	m.tick++
	all := map[string]*nstancev1.GroupStatus{}
	for _, g := range answer.GetGroups() {
		all[g.GetKey()] = g
	}
	different, doubt := m.groups.list(all, asked, m.tick, ofGroups())
	for _, g := range different {
		events = append(events, Event{Of: OfGroup, Shard: m.name, Group: g.GetKey()})
	}
	m.resync(doubt)
	m.kind, m.region, m.zone = answer.GetProviderKind(), answer.GetRegion(), answer.GetZone()
	return append(events, m.told()...)
}

// listInstances does so with all instances, tombstones too, of which those leave that it
// lacks. A phase never goes back: an answer that says so is an old one.
func (m *memory) listInstances(term, asked uint64, answer []*nstancev1.InstanceStatus) (events []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term != m.term {
		return nil
	}
	m.tick++
	all := map[string]*nstancev1.InstanceStatus{}
	for _, i := range answer {
		if known := m.instances.get(i.GetId()); known.GetPhase() > i.GetPhase() {
			i = known
		}
		all[i.GetId()] = i
	}
	different, doubt := m.instances.list(all, asked, m.tick, ofInstances())
	for _, i := range different {
		events = append(events, m.ofInstance(i))
	}
	m.resync(doubt)
	return events
}

// resync has the streams begin anew, unless they are about to tell everything anyway.
func (m *memory) resync(doubt bool) {
	if !doubt || !m.streams[client.WatchGroups].stands || !m.streams[client.WatchAllInstances].stands {
		return
	}
	select {
	case m.doubt <- struct{}{}:
	default: // they will
	}
}

// mergeGroup takes what a change of a group that was asked for after a tick answered.
// What the stream told before that change is known by its etag, and not taken any more.
func (m *memory) mergeGroup(g *nstancev1.GroupStatus, asked uint64) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick++
	key := g.GetKey()
	r := m.groups.rows[key]
	switch {
	case m.groups.since(key, asked) && r != nil && r.value.GetEtag() == g.GetEtag():
		return nil // the stream was faster, and knows as much or more
	case m.groups.since(key, asked):
		m.wake() // somebody else changed it too: which of the two came later is to be asked
	}
	var old func(*nstancev1.GroupStatus) bool
	if r != nil && r.value.GetEtag() != "" && r.value.GetEtag() != g.GetEtag() {
		before := r.value.GetEtag()
		old = func(o *nstancev1.GroupStatus) bool { return o.GetEtag() == before }
	}
	m.groups.put(key, g, m.tick, old)
	if r != nil && sameMessage(r.value, g) {
		return nil
	}
	return []Event{{Of: OfGroup, Shard: m.name, Group: key}}
}

// mergeInstance takes an instance that was answered. A phase never goes back, so the
// stream's older words are known by theirs.
func (m *memory) mergeInstance(i *nstancev1.InstanceStatus, asked uint64) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick++
	key := i.GetId()
	r := m.instances.rows[key]
	switch {
	case r != nil && r.value.GetPhase() > i.GetPhase():
		return nil
	case r != nil && r.at > asked && r.value.GetPhase() == i.GetPhase():
		return nil
	}
	phase := i.GetPhase()
	m.instances.put(key, i, m.tick, func(o *nstancev1.InstanceStatus) bool { return o.GetPhase() < phase })
	if r != nil && sameInstance(r.value, i) {
		return nil
	}
	return []Event{m.ofInstance(i)}
}

func ofGroups() kind[*nstancev1.GroupStatus] {
	return kind[*nstancev1.GroupStatus]{same: sameGroup, living: func(*nstancev1.GroupStatus) bool { return true }}
}

func ofInstances() kind[*nstancev1.InstanceStatus] {
	return kind[*nstancev1.InstanceStatus]{same: sameInstance, living: func(i *nstancev1.InstanceStatus) bool {
		return i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
	}}
}

func sameMessage(a, b *nstancev1.GroupStatus) bool { return proto.Equal(a, b) }

// sameGroup leaves out the words of conditions: some go on counting, and that a poll
// sees it is no news.
func sameGroup(a, b *nstancev1.GroupStatus) bool {
	return proto.Equal(a, b) || proto.Equal(wordless(a), wordless(b))
}

func wordless(g *nstancev1.GroupStatus) *nstancev1.GroupStatus {
	g = proto.CloneOf(g)
	for _, c := range g.GetConditions() {
		c.Message = ""
	}
	return g
}

// sameInstance leaves out when the agent reported last, which is no news either.
func sameInstance(a, b *nstancev1.InstanceStatus) bool {
	if proto.Equal(a, b) {
		return true
	}
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	a.LastReportAt, b.LastReportAt = nil, nil
	return proto.Equal(a, b)
}
