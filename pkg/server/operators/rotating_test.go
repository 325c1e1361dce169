package operators_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

func (s *shard) rotationOf(key fleet.GroupKey) fleet.Rotation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rotations[key]
}

// TestRotationIsTold: with what the next instance awaits, and for as long as one is left.
func TestRotationIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 1)
		var was fleet.Group
		f.locked(func() { was = f.groups[web] })
		at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.FixedZone("", 3600))
		for _, c := range []struct {
			rotation fleet.Rotation
			want     string
		}{
			{fleet.Rotation{Left: 3, Awaits: fleet.AwaitsSettled, Until: at},
				"3 instances are to be replaced, and the next one waits for others to settle, until 2026-11-22T11:00:00Z"},
			{fleet.Rotation{Left: 1, Awaits: fleet.AwaitsReplacement}, "1 instance is to be replaced, and waits for another to be ready"},
			{fleet.Rotation{Left: 2, Awaits: fleet.AwaitsLeaving},
				"2 instances are to be replaced, and the next one waits for those that are leaving"},
			{fleet.Rotation{Left: 2, Awaits: fleet.AwaitsSilent},
				"2 instances are to be replaced, and the next one waits for the replacement of a silent one"},
			{fleet.Rotation{Left: 2, Awaits: fleet.AwaitsSize},
				"2 instances are to be replaced, and the next one waits for the group to have its size"},
			{fleet.Rotation{Left: 2, Awaits: fleet.AwaitsShardSurge},
				"2 instances are to be replaced, and the next one waits for room in server.rotation.max_surge, which other groups use"},
			{fleet.Rotation{Left: 2, Awaits: fleet.AwaitsCreates}, "2 instances are to be replaced, and the next one waits for creates, which fail"},
		} {
			f.locked(func() { f.rotations[web] = c.rotation })
			told := f.listGroups("default").GetGroups()[0].GetConditions()
			if last := told[len(told)-1]; last.GetType() != "Rotating" || last.GetReason() != c.rotation.Awaits || last.GetMessage() != c.want {
				t.Errorf("%+v: told %v, want %q", c.rotation, last, c.want)
			}
		}
		for name, c := range map[string]struct {
			edit func(*fleet.Group)
			want string
		}{
			"paused":   {func(g *fleet.Group) { g.RolloutPaused = true }, "RolloutPaused"},
			"removed":  {func(g *fleet.Group) { g.Removed = true }, "Removed"},
			"disabled": {func(g *fleet.Group) { g.Disabled = "no template" }, "Disabled"},
			"held":     {func(g *fleet.Group) { g.RecordMissing = "it is gone" }, "GroupRecordMissing"},
			"empty":    {func(g *fleet.Group) { g.Size = 0 }, "Ready"},
		} {
			f.locked(func() {
				g := was
				c.edit(&g)
				f.groups[web] = g
			})
			if have := f.conditions(); have != c.want {
				t.Errorf("%s since the last decision: the conditions are %q, want %q", name, have, c.want)
			}
		}
		f.locked(func() { f.groups[web], f.rotations[web] = was, fleet.Rotation{} })
		if have := f.conditions(); have != "" {
			t.Errorf("the conditions are %q when it is over", have)
		}
	})
}
