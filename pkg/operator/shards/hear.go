package shards

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// This file applies what a shard reports to its memory.

// hear applies a stream's event for the followers of a term.
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

// restart reopens the streams. The state stays until they have sent a snapshot.
func (m *memory) restart(term uint64) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term != m.term {
		return nil
	}
	m.tick++
	m.problems = nil
	select {
	case <-m.doubt: // they are restarting now
	default:
	}
	for _, s := range m.streams {
		s.began, s.stands = m.tick, false
	}
	return m.told()
}

// ended records that all streams have ended, for a reason that retries alone don't fix.
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

// synced ends a snapshot. The client reports removals as far as its stream knew the objects;
// not those of tombstones, nor of objects known before that stream.
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
	// A stream that follows the leader to another server restarts without being reported lost:
	// then all of this is its snapshot.
	s.began, s.stands, s.whole = m.tick, true, true
	if m.state.Synced {
		m.state.LastSync = m.now()
	}
	return events
}

// renew makes a complete snapshot of instances override earlier answers of calls, which come
// from another term. That term's bucket may have been restored from a backup, and then phases,
// etags and removed IDs can return. Instances that the snapshot lacks were removed by
// dropUntold.
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
		if m.groups.set(e.Key, e.Group, m.tick, sameMessage) {
			return []Event{{Of: OfGroup, Shard: m.name, Group: e.Key}}
		}
	} else if m.instances.set(e.Key, e.Instance, m.tick, sameInstance) {
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
		m.problems = nil // the next stream reports those that persist
		return nil
	case client.Changed:
		m.problems = m.problems.with(e.Problem)
		m.works(e.Of)
		return append([]Event{m.ofProblem(e.Problem)}, m.told()...)
	default:
		return nil
	}
}

// note records the result of a call that began after a tick.
func (m *memory) note(asked uint64, err error) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch code := status.Code(err); {
	case code == codes.PermissionDenied || code == codes.Unauthenticated:
		m.troubles[ofCalls] = trouble{err: err, refused: true}
	case answered(err):
		m.works(ofCalls)
	case code == codes.Canceled: // by its caller, or because the shard moved
	case asked < m.connected: // another server may lead by now
	default:
		m.troubles[ofCalls] = trouble{err: err}
	}
	return m.told()
}

// answered reports whether a leader answered, even with a refusal.
func answered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return false
	default:
		return true
	}
}

// listGroups applies a list of groups that was requested after a tick. It removes no group,
// see table.list.
func (m *memory) listGroups(term, asked uint64, answer *nstancev1.ListGroupsResponse) (events []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term != m.term {
		return nil
	}
	m.tick++
	all := map[string]*nstancev1.GroupStatus{}
	for _, g := range answer.GetGroups() {
		all[g.GetKey()] = bare(g)
	}
	different, doubt := m.groups.list(all, asked, m.tick, ofGroups())
	for _, g := range different {
		events = append(events, Event{Of: OfGroup, Shard: m.name, Group: g.GetKey()})
	}
	m.resync(doubt)
	m.kind, m.region, m.zone = answer.GetProviderKind(), answer.GetRegion(), answer.GetZone()
	return append(events, m.told()...)
}

// listInstances applies a list of all instances with tombstones; tombstones that it lacks are
// removed. Phases never go back: an answer with an earlier phase is stale.
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

// resync restarts the streams, unless they are about to send a snapshot anyway.
func (m *memory) resync(doubt bool) {
	if !doubt || !m.streams[client.WatchGroups].stands || !m.streams[client.WatchAllInstances].stands {
		return
	}
	select {
	case m.doubt <- struct{}{}:
	default: // already requested
	}
}

// mergeGroup applies the answer to a change requested after a tick. Stream events from before
// that change are recognized by their etag and ignored.
func (m *memory) mergeGroup(g *nstancev1.GroupStatus, asked uint64) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick++
	key, g := g.GetKey(), bare(g)
	r := m.groups.rows[key]
	switch {
	case m.groups.since(key, asked) && r != nil && r.value.GetEtag() == g.GetEtag():
		return nil // the stream was faster and is at least as recent
	case m.groups.since(key, asked):
		m.wake() // it reported another change: poll to find out which is later
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

// mergeInstance applies an answered instance. Phases never go back, so earlier stream events
// are recognized by their phase.
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

// bare drops a group's instances, which a leader of an older version answers with: the Set has them all by
// themselves.
func bare(g *nstancev1.GroupStatus) *nstancev1.GroupStatus {
	g.Instances = nil
	return g
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

// sameGroup ignores the messages of conditions: some contain counts, which are no change.
func sameGroup(a, b *nstancev1.GroupStatus) bool {
	return proto.Equal(a, b) || proto.Equal(wordless(a), wordless(b))
}

func wordless(g *nstancev1.GroupStatus) *nstancev1.GroupStatus {
	g = proto.CloneOf(g)
	for _, c := range g.GetConditions() {
		c.Message, c.LastTransitionTime = "", nil // each leader counts from its own start
	}
	return g
}

// sameInstance ignores the time of the agent's last report.
func sameInstance(a, b *nstancev1.InstanceStatus) bool {
	if proto.Equal(a, b) {
		return true
	}
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	a.LastReportAt, b.LastReportAt = nil, nil
	return proto.Equal(a, b)
}
