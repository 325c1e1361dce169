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

// This file is how an instance that is not seen becomes one that certainly is not there.
// An object may name an instance that another operator had made a moment ago, and that
// the stream here has not told yet. So the shard itself is asked, once for each.

// missedFor is how long it is remembered that a shard has no such instance, when nothing
// asks for it any more. Ids never come again.
const missedFor = time.Hour

// missing are the instances that somebody looked for in vain.
type missing struct {
	asked map[string]string    // to be asked for: the group of each id
	never map[string]time.Time // those that the shard does not have, and when they were looked for last
	wake  chan struct{}
}

func newMissing() missing {
	return missing{asked: map[string]string{}, never: map[string]time.Time{}, wake: make(chan struct{}, 1)}
}

// Missing reports whether an instance of a group is certainly not there, nor a tombstone
// of it: its shard is Synced, and answered that there is none. An instance that is not
// known is asked for by that; the answer comes as an event.
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
	default: // it is about to
	}
}

// takeMissing are the instances to be asked for, and which group each is said to be of.
func (m *memory) takeMissing() map[string]string {
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

// putMissing has instances be asked for once more.
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

// inquire asks for what is missed, one after another.
func (f *follower) inquire(ctx context.Context) {
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-f.m.missing.wake:
		}
		open := f.m.takeMissing()
		for id, group := range open {
			if f.lookFor(ctx, group, id) == nil {
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

func (f *follower) lookFor(ctx context.Context, group, id string) error {
	_, _, asked := f.m.shard()
	answer, err := ask(ctx, f.set, f.m, func(ctx context.Context, s client.Service) (*nstancev1.GetInstanceStatusResponse, error) {
		return s.GetInstanceStatus(ctx, &nstancev1.GetInstanceStatusRequest{Id: id})
	})
	switch {
	case err == nil:
		f.set.listeners.send(f.m.mergeInstance(answer.GetInstance(), asked))
	case status.Code(err) == codes.NotFound, status.Code(err) == codes.InvalidArgument: // no instance can have that id
		f.set.listeners.send(f.m.noteMissing(group, id))
	default:
		return err
	}
	return nil
}
