package reconcile

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/balance"
	"github.com/nstance/nstance/pkg/server/plan"
)

func TestMemberOf(t *testing.T) {
	well := plan.Instance{Instance: &fleet.Instance{}, VM: plan.VMAlive, Health: plan.Health{Connected: true, LastReportAt: time.Unix(1, 0)}}
	well.ID, well.Phase, well.Provider.ID = "knd1", fleet.Running, "vm-1"
	for name, c := range map[string]struct {
		change func(*plan.Instance)
		want   balance.Member
	}{
		"does well":             {func(*plan.Instance) {}, balance.Member{Reported: true}},
		"machine not shown yet": {func(i *plan.Instance) { i.VM = plan.VMUnknown }, balance.Member{Reported: true}},
		"silent for a while":    {func(i *plan.Instance) { i.Health.Connected = false }, balance.Member{Reported: true}},
		"no report yet":         {func(i *plan.Instance) { i.Health.LastReportAt = time.Time{} }, balance.Member{}},
		"agent is being stopped": {func(i *plan.Instance) { i.Health.ShuttingDownAt = time.Unix(2, 0) },
			balance.Member{Reported: true, Stopping: true}},
		"end announced": {func(i *plan.Instance) { i.Health.Notice = &fleet.Notice{} }, balance.Member{Reported: true, Stopping: true}},
		"without files": {func(i *plan.Instance) { i.Health.WithoutFiles = true }, balance.Member{Reported: true, Bare: true}},
		"machine down":  {func(i *plan.Instance) { i.VM = plan.VMDown }, balance.Member{Reported: true, Dead: true}},
		"machine gone":  {func(i *plan.Instance) { i.VM = plan.VMGone }, balance.Member{Reported: true, Dead: true}},
	} {
		i := well
		c.change(&i)
		got := memberOf(&fleet.Group{Files: map[string]fleet.File{"app.conf": {}}}, i)
		if got.ID != i.ID || got.Phase != i.Phase || got.Provider.ID != i.Provider.ID {
			t.Errorf("%s: another instance: %v", name, got)
		}
		if memberOf(&fleet.Group{}, i).Bare {
			t.Errorf("%s: lacks files that its group does not have", name)
		}
		if got.Bare != c.want.Bare || got.Dead != c.want.Dead || got.Reported != c.want.Reported || got.Stopping != c.want.Stopping {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
