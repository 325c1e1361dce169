package shards

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// followed returns the values of a shard with a group web after both snapshots, with these
// instances.
func followed(all ...*nstancev1.InstanceStatus) *memory {
	m := newMemory(client.Shard{ID: "one"}, time.Now)
	m.restart(0)
	m.hear(0, word(1, "a"))
	m.hear(0, client.Event{Kind: client.Synced, Of: client.WatchGroups})
	for _, i := range all {
		m.hear(0, client.Event{Kind: client.Changed, Of: client.WatchAllInstances, Key: i.GetId(), Instance: i})
	}
	m.hear(0, client.Event{Kind: client.Synced, Of: client.WatchAllInstances})
	return m
}

// doubts reports whether the streams have to be restarted.
func (m *memory) doubts() bool {
	select {
	case <-m.doubt:
		return true
	default:
		return false
	}
}

// TestADeposedLeadersList neither removes nor restores anything: the streams, which are at the
// current leader, report removals.
func TestADeposedLeadersList(t *testing.T) {
	of := func(id string, phase nstancev1.InstancePhase) *nstancev1.InstanceStatus {
		return &nstancev1.InstanceStatus{Id: id, Group: "web", Phase: phase}
	}
	const (
		running = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
		deleted = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
	)
	m := followed(of("new", running), of("ended", deleted), of("tombstone", deleted))
	events := m.listGroups(0, m.tick, &nstancev1.ListGroupsResponse{})
	events = append(events, m.listInstances(0, m.tick, []*nstancev1.InstanceStatus{of("ended", running)})...)
	for _, e := range events {
		if e.Of == OfGroup || e.Instance != "tombstone" {
			t.Errorf("told: %+v", e)
		}
	}
	if m.groups.get("web") == nil || m.instances.get("new") == nil {
		t.Error("what the list lacks is gone")
	}
	if m.instances.get("ended").GetPhase() != deleted || m.instances.get("tombstone") != nil {
		t.Errorf("those that ended: %v", m.instances.rows)
	}
	if m.doubts() {
		t.Error("the streams are to begin anew, though they tell of all that there is")
	}
}

// TestDoubt arises if a list lacks a value that no stream reported, while the streams work;
// values that they reported, they will report removed.
func TestDoubt(t *testing.T) {
	m := followed()
	answered := &nstancev1.InstanceStatus{Id: "i", Group: "web"}
	m.mergeInstance(answered, m.tick)
	list := func() bool {
		m.listInstances(0, m.tick, nil)
		if m.instances.get("i") == nil {
			t.Error("what the list lacks is gone")
		}
		return m.doubts()
	}
	if !list() {
		t.Error("no doubt of what was only answered")
	}
	m.restart(0)
	if list() {
		t.Error("the streams are to begin anew while they do")
	}
	m.hear(0, client.Event{Kind: client.Changed, Of: client.WatchAllInstances, Key: "i", Instance: answered})
	m.hear(0, client.Event{Kind: client.Synced, Of: client.WatchAllInstances})
	m.hear(0, word(1, "a"))
	m.hear(0, client.Event{Kind: client.Synced, Of: client.WatchGroups})
	if list() {
		t.Error("doubt of what the streams told")
	}
}
