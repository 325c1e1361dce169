package pacing

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestPastOfATombstone: the outcome of the create depends on when the instance was lost, not on how
// long its drain and deletion took.
func TestPastOfATombstone(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(d time.Duration) *time.Time { at := began.Add(d); return &at }
	settings := plan.Settings{Settle: 2 * time.Minute}
	const drain = 5 * time.Minute
	g := fleet.Group{Size: 5, DrainTimeout: drain}
	for name, c := range map[string]struct {
		reason          string
		drained, end    time.Duration
		failed, settled bool
	}{
		"refused":                       {reason: plan.ReasonCreateFailed, end: time.Second, failed: true},
		"died young":                    {reason: plan.ReasonVMDown, end: time.Minute, failed: true},
		"died young, or slowly deleted": {reason: plan.ReasonVMDown, end: 3 * time.Minute},
		"died":                          {reason: plan.ReasonVMDown, end: time.Hour, settled: true},
		"being deleted for long":        {reason: plan.ReasonVMDown},
		"silent while young":            {reason: plan.ReasonUnhealthy, drained: time.Minute, end: 7 * time.Minute, failed: true},
		"silent":                        {reason: plan.ReasonUnhealthy, drained: 3 * time.Minute, end: 9 * time.Minute, settled: true},
		"scaled down while young":       {reason: plan.ReasonScaleDown, drained: time.Minute, end: 7 * time.Minute},
		"scaled down":                   {reason: plan.ReasonScaleDown, drained: 3 * time.Minute, end: 4 * time.Minute, settled: true},
		"scaled down without a drain":   {reason: plan.ReasonScaleDown, end: 3 * time.Minute, settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := fleet.Instance{ID: "knd1", Phase: fleet.Deleted, Reason: c.reason, CreatedAt: began, DeletedAt: after(c.end)}
			if c.end == 0 {
				r.Phase, r.DeletedAt = fleet.Deleting, nil
			}
			if c.reason != plan.ReasonCreateFailed {
				r.RegisteredAt, r.Provider.ID = after(0), "vm"
			}
			if c.drained > 0 {
				r.Drain = &fleet.Drain{Reason: c.reason, DeleteAt: *after(c.drained + drain)}
			}
			all, settled := pastOf(&r, g, settings, began.Add(2*time.Hour))
			failures := 0
			for _, one := range all {
				if one.failed != nil {
					failures++
				}
			}
			if settled != c.settled || failures > 1 || (failures == 1) != c.failed {
				t.Errorf("%d failures, settled: %v; want %v and %v", failures, settled, c.failed, c.settled)
			}
		})
	}
}
