package machine

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// places counts a group's machines per shard, including machines placed a moment ago whose
// shard the cache does not show yet: otherwise machines placed at once would all go to the
// same shard. The zero value is ready.
type places struct {
	mu     sync.Mutex
	chosen map[v1beta1.Name]map[types.UID]string // by group
}

// place calls choose with the counts of the machine's group and records the choice; an empty
// choice is none.
func (p *places) place(m *v1beta1.NstanceMachine, machines []v1beta1.NstanceMachine, choose func(count map[string]int) string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	group := m.Spec.Group
	seen, count := map[types.UID]string{}, map[string]int{}
	for i := range machines {
		o := &machines[i]
		shard := string(o.Spec.Shard)
		if chosen, ok := p.chosen[group][o.UID]; ok && shard == "" {
			seen[o.UID], shard = chosen, chosen
		}
		if shard != "" && o.UID != m.UID && o.DeletionTimestamp.IsZero() {
			count[shard]++
		}
	}
	if p.chosen == nil {
		p.chosen = map[v1beta1.Name]map[types.UID]string{}
	}
	p.chosen[group] = seen
	shard := choose(count)
	if shard != "" {
		seen[m.UID] = shard
	}
	return shard
}
