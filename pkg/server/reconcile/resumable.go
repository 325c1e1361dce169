package reconcile

import (
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// resumable are the records that were pending when the term began, by group: those
// that still are so go on with the same id.
type resumable map[fleet.GroupKey]map[fleet.InstanceID]bool

func (r resumable) add(i fleet.Instance) {
	if r[i.GroupKey()] == nil {
		r[i.GroupKey()] = map[fleet.InstanceID]bool{}
	}
	r[i.GroupKey()][i.ID] = true
}

// keep forgets those of a group that are not pending any more: they never are again.
func (r resumable) keep(key fleet.GroupKey, instances []plan.Instance) {
	old := r[key]
	if len(old) == 0 {
		return
	}
	delete(r, key)
	for _, i := range instances {
		if i.Phase == fleet.Pending && old[i.ID] {
			r.add(i.Instance)
		}
	}
}
