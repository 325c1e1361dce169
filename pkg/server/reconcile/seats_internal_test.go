package reconcile

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

func TestWishFor(t *testing.T) {
	well := plan.Instance{VM: plan.VMAlive, Health: plan.Health{Connected: true, LastReportAt: time.Unix(1, 0)}}
	well.Phase, well.Provider.ID = fleet.Running, "vm-1"
	for name, c := range map[string]struct {
		change func(*plan.Instance)
		want   wish
	}{
		"does well":              {func(*plan.Instance) {}, in},
		"on demand":              {func(i *plan.Instance) { i.OnDemand = true }, in},
		"machine not shown yet":  {func(i *plan.Instance) { i.VM = plan.VMUnknown }, in},
		"silent for a while":     {func(i *plan.Instance) { i.Health.Connected = false }, in},
		"no report yet":          {func(i *plan.Instance) { i.Health.LastReportAt = time.Time{} }, keep},
		"not registered yet":     {func(i *plan.Instance) { i.Phase = fleet.Pending }, keep},
		"machine not recorded":   {func(i *plan.Instance) { i.Provider.ID = "" }, keep},
		"agent is being stopped": {func(i *plan.Instance) { i.Health.ShuttingDownAt = time.Unix(2, 0) }, keep},
		"end announced":          {func(i *plan.Instance) { i.Health.Notice = &fleet.Notice{} }, keep},
		"machine down":           {func(i *plan.Instance) { i.VM = plan.VMDown }, out},
		"machine gone":           {func(i *plan.Instance) { i.VM = plan.VMGone }, out},
		"draining":               {func(i *plan.Instance) { i.Phase = fleet.Draining }, out},
		"deleting":               {func(i *plan.Instance) { i.Phase = fleet.Deleting }, out},
		"tombstone":              {func(i *plan.Instance) { i.Phase = fleet.Deleted }, out},
	} {
		i := well
		c.change(&i)
		if got := wishFor(i); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		state        standing
		want         wish
		read, unread call
	}{
		{unsure, in, register, none}, {registered, in, none, none}, {absent, in, register, none},
		{unsure, out, deregister, deregister}, {registered, out, deregister, deregister}, {absent, out, none, none},
		{unsure, keep, none, none}, {registered, keep, none, none}, {absent, keep, none, none},
	} {
		if got := due(c.state, c.want, true); got != c.read {
			t.Errorf("state %v, want %v: %v, want %v", c.state, c.want, got, c.read)
		}
		if got := due(c.state, c.want, false); got != c.unread {
			t.Errorf("state %v, want %v, target unread: %v, want %v", c.state, c.want, got, c.unread)
		}
	}
}
