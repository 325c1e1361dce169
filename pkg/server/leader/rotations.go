package leader

import (
	"sync"

	"github.com/nstance/nstance/pkg/fleet"
)

// rotations are those of the groups that rotate, as of the loop's last decision about each. Safe for
// concurrent use.
type rotations struct {
	changed func(fleet.GroupKey)

	mu sync.Mutex
	of map[fleet.GroupKey]fleet.Rotation
}

func newRotations(changed func(fleet.GroupKey)) *rotations {
	return &rotations{changed: changed, of: map[fleet.GroupKey]fleet.Rotation{}}
}

func (r *rotations) get(key fleet.GroupKey) fleet.Rotation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[key]
}

// decided is called with each decision about a group, and tells those that differ from the one before.
func (r *rotations) decided(key fleet.GroupKey, to fleet.Rotation) {
	if r.set(key, to) {
		r.changed(key)
	}
}

func (r *rotations) set(key fleet.GroupKey, to fleet.Rotation) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = r.of[key] != to
	if to.Left == 0 {
		delete(r.of, key)
	} else {
		r.of[key] = to
	}
	return changed
}
