package reconcile

import (
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// resumable holds the records that were pending when the term began, by group. Those still
// pending are resumed with the same id.
type resumable map[fleet.GroupKey]map[fleet.InstanceID]bool

func (r resumable) add(i fleet.Instance) {
	if r[i.GroupKey()] == nil {
		r[i.GroupKey()] = map[fleet.InstanceID]bool{}
	}
	r[i.GroupKey()][i.ID] = true
}

// retain drops a group's records that are no longer pending.
func (r resumable) retain(key fleet.GroupKey, instances []plan.Instance) {
	old := r[key]
	if len(old) == 0 {
		return
	}
	delete(r, key)
	for _, i := range instances {
		if i.Phase == fleet.Pending && old[i.ID] {
			r.add(*i.Instance)
		}
	}
}
