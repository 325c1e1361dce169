package leader

import (
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

// TestRotationsTellWhatIsNew: watches hear of a decision that differs from the one before, and of no other.
func TestRotationsTellWhatIsNew(t *testing.T) {
	web, db := fleet.GroupKey{Tenant: "default", Name: "web"}, fleet.GroupKey{Tenant: "default", Name: "db"}
	var told []fleet.GroupKey
	r := newRotations(func(key fleet.GroupKey) { told = append(told, key) })
	for _, c := range []struct {
		key fleet.GroupKey
		to  fleet.Rotation
		new bool
	}{
		{web, fleet.Rotation{}, false},
		{web, fleet.Rotation{Left: 2, Awaits: fleet.AwaitsReplacement}, true},
		{web, fleet.Rotation{Left: 2, Awaits: fleet.AwaitsReplacement}, false},
		{db, fleet.Rotation{}, false},
		{db, fleet.Rotation{Left: 2, Awaits: fleet.AwaitsShardSurge}, true},
		{web, fleet.Rotation{Left: 2, Awaits: fleet.AwaitsSettled}, true},
		{web, fleet.Rotation{}, true},
		{web, fleet.Rotation{}, false},
	} {
		told = nil
		r.decided(c.key, c.to)
		if got := r.get(c.key); got != c.to || slices.Contains(told, c.key) != c.new || len(told) > 1 {
			t.Errorf("%s: %+v: told %v, known is %+v", c.key, c.to, told, got)
		}
	}
	if len(r.of) != 1 {
		t.Errorf("%v are kept, want those that rotate", r.of)
	}
}
