package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// mirror is a reader that reads an instance only when it is notified of a change.
type mirror struct {
	s     *shard
	known map[fleet.InstanceID]string

	mu     sync.Mutex
	marked map[fleet.InstanceID]bool
	groups map[fleet.GroupKey]bool // the zero key: all
}

func (m *mirror) changed(key fleet.GroupKey, id fleet.InstanceID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == "" {
		m.groups[key] = true
	} else {
		m.marked[id] = true
	}
}

// look is the visible state of an instance, without the provider's last answer.
func (m *mirror) look(id fleet.InstanceID) string {
	r, ok := m.s.term.ledger.Get(id)
	if !ok {
		return ""
	}
	h := m.s.term.Health(id)
	return fmt.Sprintf("%s of %s, vm %q, connected %t, reported %t",
		r.Phase, r.GroupKey(), r.Provider.ID, h.Connected, !h.LastReportAt.IsZero())
}

// check compares the changed instances, and verifies that all others are unchanged.
func (m *mirror) check(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[fleet.InstanceID]bool{}
	for id := range m.known {
		all[id] = true
	}
	for _, r := range m.s.term.ledger.Instances() {
		all[r.ID] = true
		if m.groups[fleet.GroupKey{}] || m.groups[r.GroupKey()] {
			m.marked[r.ID] = true
		}
	}
	for id := range all {
		now := m.look(id)
		if !m.marked[id] && m.known[id] != now {
			t.Errorf("no change was told of %s, which was %q and is %q", id, m.known[id], now)
		}
		if m.known[id] = now; now == "" {
			delete(m.known, id)
		}
	}
	clear(m.marked)
	clear(m.groups)
}

// TestEveryChangeIsTold: a reader that reads only on notifications misses nothing, whatever
// fails in instances, the provider and the store.
func TestEveryChangeIsTold(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			slow := fake.Span{Min: 100 * time.Millisecond, Max: 5 * time.Second}
			bubble(t, fake.Config{Seed: seed, CreateLatency: slow, DeleteLatency: slow}, func(t *testing.T, s *shard) {
				random := rand.New(rand.NewPCG(seed, 1))
				ofStore := rand.New(rand.NewPCG(seed, 2)) // of those who write, under s.mu
				m := &mirror{s: s, known: map[fleet.InstanceID]string{}, marked: map[fleet.InstanceID]bool{}, groups: map[fleet.GroupKey]bool{}}
				s.adjust = func(c *reconcile.Config) { c.Changed = m.changed }
				failing := 0
				s.bucket.fail = func(string, fleet.InstanceID) (bool, error) {
					s.mu.Lock()
					defer s.mu.Unlock()
					if failing > 0 {
						failing--
						return ofStore.IntN(2) == 0, errStoreDown
					}
					return true, nil
				}
				s.wanted.edit(db, func(g *fleet.Group) { g.Size, g.DrainTimeout = 2, time.Minute })
				s.size(web, 3)
				s.lead()
				for range 150 {
					switch ids := s.running(web); random.IntN(12) {
					case 0:
						s.size(web, random.IntN(5))
					case 1:
						s.size(db, random.IntN(4))
					case 2, 3:
						if len(ids) > 0 {
							s.world.Kill(ids[random.IntN(len(ids))])
						}
					case 4:
						s.mu.Lock()
						failing = random.IntN(4)
						s.mu.Unlock()
					case 5:
						s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: fake.ErrLost, Applied: random.IntN(2) == 0})
					case 6:
						s.world.FailNext(fake.OpDelete, 1, fake.Fault{Err: provider.ErrThrottled})
					case 7:
						pass(40 * time.Minute)
					default:
					}
					pass(time.Duration(random.IntN(20_000)) * time.Millisecond)
					m.check(t)
				}
			})
		})
	}
}
