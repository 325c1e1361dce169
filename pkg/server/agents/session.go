package agents

import (
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// sessions are the current health streams, one per instance. Its lock is held
// while the shard is told, so that it learns of the streams of an instance
// in the order in which they took each other's place.
type sessions struct {
	mu      sync.Mutex
	current map[fleet.InstanceID]*session
}

// session is one health stream. Its address is its identity.
type session struct {
	shard    Shard
	replaced chan struct{}
}

// begin makes a stream the current one of its instance.
func (s *sessions) begin(id fleet.InstanceID, shard Shard) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.current[id]; old != nil {
		close(old.replaced)
		old.shard.Files().Disconnected(id)
	}
	me := &session{shard: shard, replaced: make(chan struct{})}
	s.current[id] = me
	shard.AgentConnected(id)
	return me
}

// report passes a report on, unless a newer stream has taken over meanwhile.
func (s *sessions) report(id fleet.InstanceID, me *session, r fleet.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current[id] == me {
		me.shard.AgentReport(id, r)
	}
}

// reportFiles is report, of what was said of files.
func (s *sessions) reportFiles(id fleet.InstanceID, me *session, r delivery.FileReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current[id] == me {
		me.shard.Files().Reported(id, r)
	}
}

// end ends a stream. It is a disconnect if the stream was the current one and
// did not end because its term did: then the server went away, not the agent.
func (s *sessions) end(id fleet.InstanceID, me *session, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current[id] != me {
		return
	}
	delete(s.current, id)
	me.shard.Files().Disconnected(id)
	select {
	case <-me.shard.Done():
	default:
		me.shard.AgentDisconnected(id, now)
	}
}
