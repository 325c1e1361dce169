package reconcile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// TestFaultRuns drives shards through seeded faults: lost replies, dying and vanishing
// machines, silent agents, an unavailable store, crashing servers, records removed
// manually, foreign VMs with the shard's tags. Meanwhile no former leader acts, nothing
// is created without a record, and a group of constant size has at most one instance
// beyond it; after the faults the shard settles. A failing seed is replayed by its
// name; FAULT_RUNS=n sets the number of seeds.
func TestFaultRuns(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 10
	}
	if n := os.Getenv("FAULT_RUNS"); n != "" {
		var err error
		if seeds, err = strconv.Atoi(n); err != nil {
			t.Fatalf("FAULT_RUNS: %v", err)
		}
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble(t, fake.Config{Seed: uint64(seed)}, func(t *testing.T, s *shard) {
				m := &misfortune{s: s, r: rand.New(rand.NewPCG(uint64(seed), 1)), size: 4}
				m.run(t, uint64(seed))
			})
		})
	}
}

type misfortune struct {
	s       *shard
	r       *rand.Rand
	size    int // of web, all along
	removed int // VMs that have no record; more than two at a time would hold the shard
}

func (m *misfortune) run(t *testing.T, seed uint64) {
	s := m.s
	lag := time.Duration(seed%2) * time.Second // of every other seed's provider, which can't be watched
	if lag > 0 {
		s.adjust = withoutWatch
	}
	s.world = fake.New(fake.Config{
		Seed: seed, Lag: fake.Span{Max: lag},
		Boot: fake.Span{Min: time.Second, Max: 20 * time.Second}, Shutdown: fake.Span{Max: 20 * time.Second},
		CreateLatency: fake.Span{Max: 2 * time.Second}, DeleteLatency: fake.Span{Max: time.Second},
		GetLatency: fake.Span{Max: 100 * time.Millisecond}, ListLatency: fake.Span{Max: 300 * time.Millisecond},
		LandsAfterCancel: 0.5,
		Chances: []fake.Chance{
			{Op: fake.OpCreate, Probability: 0.1, Fault: fake.Fault{Err: fake.ErrLost, Applied: true}},
			{Op: fake.OpCreate, Probability: 0.1, Fault: fake.Fault{Err: fake.ErrLost}},
			{Op: fake.OpCreate, Probability: 0.03, Fault: fake.Fault{Err: provider.ErrSubnetFull}},
			{Op: fake.OpCreate, Probability: 0.03, Fault: fake.Fault{Err: provider.ErrQuota}},
			{Op: fake.OpCreate, Probability: 0.03, Fault: fake.Fault{Hang: true}},
			{Probability: 0.02, Fault: fake.Fault{Err: provider.ErrThrottled}},
			{Probability: 0.05, Fault: fake.Fault{Err: fake.ErrLost}},
		},
		OnCall: func(c fake.Call) { m.check(t, c) },
	})
	s.bucket.latency = 10 * time.Millisecond
	broken := rand.New(rand.NewPCG(seed, 2))
	s.bucket.fail = func(string, fleet.InstanceID) (bool, error) {
		if broken.Float64() < 0.05 {
			return broken.Float64() < 0.5, errStoreDown
		}
		return true, nil
	}
	s.agents.mute = map[fleet.InstanceID]bool{}
	s.size(web, m.size)
	s.size(db, 3)
	s.lead()
	for range 40 {
		m.strike()
		for range 20 {
			pass(500 * time.Millisecond)
			m.neverTooMany(t)
		}
	}
	m.settle(t)
}

// check sees every provider call as it starts.
func (m *misfortune) check(t *testing.T, c fake.Call) {
	if c.Op != fake.OpCreate && c.Op != fake.OpDelete {
		return
	}
	b := m.s.bucket
	b.mu.Lock()
	defer b.mu.Unlock()
	if want := fmt.Sprintf("server-%d", b.epoch); c.By != want {
		t.Errorf("%s by %s while %s leads", c.Op, c.By, want)
	}
	if r, ok := b.records[c.Ref.ID]; c.Op == fake.OpCreate && (!ok || r.Phase != fleet.Pending && r.Phase != fleet.Running) {
		t.Errorf("create of %s, whose record is %q", c.Ref.ID, r.Phase)
	}
}

// strike causes one fault.
func (m *misfortune) strike() {
	s := m.s
	vms := s.world.VMs()
	ids := append(s.running(web), s.running(db)...)
	switch m.r.IntN(15) {
	case 0, 1:
		if len(vms) > 0 {
			s.world.Kill(vms[m.r.IntN(len(vms))].ID)
		}
	case 2:
		for _, vm := range vms {
			s.world.Kill(vm.ID)
		}
	case 3:
		if len(vms) > 0 {
			s.world.Vanish(vms[m.r.IntN(len(vms))].ID)
		}
	case 4:
		if len(ids) > 0 { // an agent hangs for good
			id := ids[m.r.IntN(len(ids))]
			s.agents.mu.Lock()
			s.agents.mute[id] = true
			s.agents.mu.Unlock()
			s.agents.drop(s.term, id)
		}
	case 5:
		if len(ids) > 0 { // an agent restarts
			id := ids[m.r.IntN(len(ids))]
			s.agents.drop(s.term, id)
			s.agents.connect(s.term, id)
		}
	case 6:
		s.size(db, m.r.IntN(6))
	case 7, 8:
		_ = s.stop()
		pass(time.Duration(m.r.IntN(5)) * time.Second)
		s.lead()
	case 9:
		s.down(true)
		pass(time.Duration(m.r.IntN(20)) * time.Second)
		s.down(false)
	case 10:
		if db := s.running(db); len(db) > 0 && m.removed < 2 {
			s.bucket.take(db[m.r.IntN(len(db))])
			m.removed++
		}
	case 11:
		if m.removed < 2 {
			m.removed++
			id, _ := s.newID("knd", time.Now())
			s.world.Plant(scope.Tags(fleet.Instance{ID: id, Tenant: db.Tenant, Group: db.Name}))
		}
		s.world.BreakWatches(errors.New("stream reset"))
	case 12:
		m.demand()
	case 13, 14:
		var ids []fleet.InstanceID
		for _, key := range []fleet.GroupKey{web, db} {
			ids = append(ids, s.records(key, fleet.Pending, fleet.Running, fleet.Draining)...)
		}
		if len(ids) > 0 { // the loop may miss it
			_ = s.change(ids[m.r.IntN(len(ids))], func(i *fleet.Instance) { i.RemovalAskedAt = new(time.Now()) })
		}
	}
}

// demand requests an on-demand instance of either group. If the store fails, it may be created
// nevertheless.
func (m *misfortune) demand() {
	s, key := m.s, web
	if m.r.IntN(2) == 0 {
		key = db
	}
	_, _ = s.term.ledger.Create(s.t.Context(), s.demanded(key))
	if m.r.IntN(4) > 0 { // otherwise the loop is not notified
		s.term.Enqueue(key)
	}
}

// neverTooMany checks the group of constant size: the instances that are pending or running by
// their records and whose VM is not dead.
func (m *misfortune) neverTooMany(t *testing.T) {
	state := map[fleet.InstanceID]provider.State{}
	for _, vm := range m.s.world.VMs() {
		state[vm.ID] = vm.State
	}
	n := 0
	for _, r := range m.s.bucket.all() {
		if r.GroupKey() != web || r.OnDemand || !r.Phase.Active() {
			continue
		}
		there, known := state[r.ID]
		unmade := r.Phase == fleet.Pending && r.Provider.ID == ""
		if known && there.Alive() || !known && unmade { // alive, or not created yet
			n++
		}
	}
	if n > m.size+1 {
		t.Fatalf("%d live instances, more than %d: %s", n, m.size+1, m.s.dump())
	}
}

// settle ends all faults and expects the shard to settle.
func (m *misfortune) settle(t *testing.T) {
	s := m.s
	s.bucket.mu.Lock()
	s.bucket.fail = nil
	s.bucket.mu.Unlock()
	_ = s.stop()
	s.lead()
	s.size(db, 3)
	pass(20 * time.Minute)
	synctest.Wait()
	s.expectManaged(web, m.size)
	s.expectManaged(db, 3)
	for _, r := range s.bucket.all() {
		if r.OnDemand && r.Phase.Active() && (r.Phase != fleet.Running || r.RemovalAskedAt != nil || !s.isAlive(r.ID)) {
			t.Errorf("on-demand instance %s is left over: %s", r.ID, s.dump())
		}
	}
	if s.term.held().Message != "" {
		t.Fatalf("held: %s", s.term.held().Message)
	}
	for _, vm := range s.world.VMs() {
		i := slices.IndexFunc(s.bucket.all(), func(r fleet.Instance) bool {
			return r.ID == vm.ID && r.Phase == fleet.Running && r.Provider.ID == vm.ProviderID
		})
		if i < 0 {
			t.Errorf("VM %s of %s is left over: %s", vm.ProviderID, vm.ID, s.dump())
		}
	}
}
