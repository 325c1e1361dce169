package server_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// lifeWrites counts the writes of objects that belong to single instances.
type lifeWrites struct {
	object.Store
	puts atomic.Int64
}

func (w *lifeWrites) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	if slices.ContainsFunc([]string{"instance/", "request/", "certlog/"}, func(part string) bool { return strings.HasPrefix(key, part) }) {
		w.puts.Add(1)
	}
	return w.Store.Put(ctx, key, body, pre)
}

// TestLifeWrites counts the writes to object storage in an instance's whole life, from its create until
// its tombstone is removed, or in the birth of one and the end of another like it.
func TestLifeWrites(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		simulated(t, func(t *testing.T) {
			s, p, writes := counted(newSite(t, calm))
			s.populate(p)
			p.awaitSize("web", 2)
			writes.atMost(t, 5, retained, func() {
				s.world.Kill(s.living()[0])
				time.Sleep(time.Second)
				p.awaitSize("web", 2)
			})
		})
	})
	t.Run("drained", func(t *testing.T) {
		simulated(t, func(t *testing.T) {
			s := furnished(t, `"default": { "web": { "template": "knd", "size": 2 } }`)
			s.config[`"default_drain_timeout": "0s"`] = `"default_drain_timeout": "1h"`
			calm(s)
			s, p, writes := counted(s)
			s.inhabit(p)
			p.awaitSize("web", 2)
			writes.atMost(t, 8, time.Minute, func() {
				p.scale(3)
				p.awaitSize("web", 3)
				oldest := s.living()[0]
				p.scale(2)
				p.awaitPhase(oldest, isDraining)
				if err := p.ack(oldest); err != nil {
					t.Fatal(err)
				}
				p.awaitPhase(oldest, isDeleted)
			})
		})
	})
	t.Run("on demand", func(t *testing.T) {
		simulated(t, func(t *testing.T) {
			s, p, writes := counted(newSite(t, calm))
			s.populate(p)
			p.awaitSize("web", 2)
			writes.atMost(t, 8, retained, func() {
				id := p.created("pod-1")
				p.awaitPhase(id, nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING)
				if err := p.delete(id); err != nil {
					t.Fatal(err)
				}
				p.awaitPhase(id, isDeleted)
			})
		})
	})
}

// counted starts a server whose writes are counted.
func counted(s *site) (*site, *process, *lifeWrites) {
	s.t.Helper()
	writes := &lifeWrites{Store: s.store}
	return s, s.start(func(c *server.Config) { c.Store = writes }), writes
}

// retained is longer than tombstones are kept.
const retained = 40 * time.Minute

// atMost counts the writes of a life, also for a time after it.
func (w *lifeWrites) atMost(t *testing.T, most int64, after time.Duration, life func()) {
	t.Helper()
	time.Sleep(time.Minute)
	before := w.puts.Load()
	life()
	time.Sleep(after)
	writes := w.puts.Load() - before
	t.Logf("%d writes in a life", writes)
	if writes > most || writes < 3 {
		t.Errorf("%d writes in a life, want at most %d, and those of birth, registration and end", writes, most)
	}
}
