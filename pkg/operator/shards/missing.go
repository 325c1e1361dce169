package shards

import (
	"context"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/retry"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// This file decides whether an instance that is not known certainly does not exist. An object
// may name an instance that another operator just created and that our stream has not reported
// yet. So the shard itself is asked, once for each.

// missedFor is how long a negative answer is kept after its last use. IDs are never reused.
const missedFor = time.Hour

// missing are the instances that were looked up and not found.
type missing struct {
	asked map[string]string    // to look up: group by ID
	never map[string]time.Time // negative answers, with their last use
	wake  chan struct{}
}

func newMissing() missing {
	return missing{asked: map[string]string{}, never: map[string]time.Time{}, wake: make(chan struct{}, 1)}
}

// Missing reports whether an instance of a group certainly does not exist, not even as a
// tombstone: its shard is Synced, and has answered so. For an unknown instance it starts a
// lookup; an event follows.
func (s *Set) Missing(shard, group, id string) bool {
	m := s.memory(shard)
	return m != nil && id != "" && m.missed(group, id)
}

func (m *memory) missed(group, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.instances.rows[id] != nil || !m.state.Synced {
		return false
	}
	if _, never := m.missing.never[id]; never {
		m.missing.never[id] = m.now()
		return true
	}
	m.missing.asked[id] = group
	m.inquire()
	return false
}

func (m *memory) inquire() {
	select {
	case m.missing.wake <- struct{}{}:
	default: // already requested
	}
}

// drainMissing returns and clears the instances to look up, with their groups.
func (m *memory) drainMissing() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, at := range m.missing.never {
		if m.now().Sub(at) > missedFor {
			delete(m.missing.never, id)
		}
	}
	taken := m.missing.asked
	m.missing.asked = map[string]string{}
	return taken
}

// putMissing requeues lookups.
func (m *memory) putMissing(open map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.missing.asked, open)
	m.inquire()
}

func (m *memory) noteMissing(group, id string) []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missing.never[id] = m.now()
	return []Event{{Of: OfInstance, Shard: m.name, Group: group, Instance: id}}
}

// inquire looks up missed instances, one after another.
func (f *follower) inquire(ctx context.Context) {
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-f.m.missing.wake:
		}
		open := f.m.drainMissing()
		for id, group := range open {
			if f.fetch(ctx, group, id) == nil {
				delete(open, id)
			}
		}
		if len(open) == 0 {
			failures = 0
			continue
		}
		failures++
		f.m.putMissing(open)
		if retry.Wait(ctx, patience().Draw(failures, f.set.cfg.Random)) != nil {
			return
		}
	}
}

func (f *follower) fetch(ctx context.Context, group, id string) error {
	_, _, asked := f.m.shard()
	answer, err := callShard(ctx, f.set, f.m, func(ctx context.Context, s client.Service) (*nstancev1.GetInstanceStatusResponse, error) {
		return s.GetInstanceStatus(ctx, &nstancev1.GetInstanceStatusRequest{Id: id})
	})
	switch {
	case err == nil:
		f.set.listeners.send(f.m.mergeInstance(answer.GetInstance(), asked))
	case status.Code(err) == codes.NotFound, status.Code(err) == codes.InvalidArgument: // InvalidArgument: the ID is malformed
		f.set.listeners.send(f.m.noteMissing(group, id))
	default:
		return err
	}
	return nil
}
