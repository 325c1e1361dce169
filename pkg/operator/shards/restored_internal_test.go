package shards

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestAnEarlierBucketIsBelieved: after a leader's term on a restored bucket, earlier phases and
// etags occur again. A whole snapshot counts, whatever the earlier term answered; a resumed one is
// of the same term, and does not.
func TestAnEarlierBucketIsBelieved(t *testing.T) {
	const (
		running  = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
		deleting = nstancev1.InstancePhase_INSTANCE_PHASE_DELETING
	)
	for name, order := range map[string][]string{
		"instances first": {client.WatchAllInstances, client.WatchGroups},
		"groups first":    {client.WatchGroups, client.WatchAllInstances},
	} {
		for _, resumed := range []bool{false, true} {
			m := newMemory(client.Shard{ID: "one"}, time.Now)
			tells := map[string]func(){
				client.WatchGroups: func() {
					m.hear(0, word(1, "a"))
					m.hear(0, client.Event{Kind: client.Synced, Of: client.WatchGroups})
				},
				client.WatchAllInstances: func() {
					is := &nstancev1.InstanceStatus{Id: "i", Group: "web", Phase: running}
					m.hear(0, client.Event{Kind: client.Changed, Of: client.WatchAllInstances, Key: "i", Instance: is})
					goesOn := resumed && m.streams[client.WatchAllInstances].whole
					m.hear(0, client.Event{Kind: client.Synced, Of: client.WatchAllInstances, Resumed: goesOn})
				},
			}
			for _, of := range order {
				tells[of]()
			}
			_, _, asked := m.shard()
			m.mergeGroup(word(2, "b").Group, asked)
			m.mergeInstance(&nstancev1.InstanceStatus{Id: "i", Group: "web", Phase: deleting}, asked)
			m.noteMissing("web", "j")
			for _, of := range order {
				m.hear(0, client.Event{Kind: client.Lost, Of: of})
			}
			for _, of := range order {
				tells[of]()
			}
			size, phase := m.groups.get("web").GetSize(), m.instances.get("i").GetPhase()
			switch {
			case resumed && (size != 2 || phase != deleting):
				t.Errorf("%s, resumed: size %d and %v, want what was answered", name, size, phase)
			case !resumed && (size != 1 || phase != running):
				t.Errorf("%s: size %d and %v, want what the snapshot says", name, size, phase)
			case !resumed && len(m.missing.never) > 0:
				t.Errorf("%s: what was missing before is still believed to be", name)
			}
		}
	}
}
