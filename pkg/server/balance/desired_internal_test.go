package balance

import (
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

func TestDesiredOf(t *testing.T) {
	well := Member{Reported: true}
	well.Phase, well.Provider.ID = fleet.Running, "vm-1"
	for name, c := range map[string]struct {
		change func(*Member)
		want   state
	}{
		"does well":                      {func(*Member) {}, registered},
		"on demand":                      {func(m *Member) { m.OnDemand = true }, registered},
		"no report yet":                  {func(m *Member) { m.Reported = false }, unset},
		"not registered yet":             {func(m *Member) { m.Phase = fleet.Pending }, unset},
		"machine not recorded":           {func(m *Member) { m.Provider.ID = "" }, unset},
		"being stopped or end announced": {func(m *Member) { m.Stopping = true }, unset},
		"lacks its files":                {func(m *Member) { m.Bare = true }, unset},
		"machine dead":                   {func(m *Member) { m.Dead = true }, deregistered},
		"draining":                       {func(m *Member) { m.Phase = fleet.Draining }, deregistered},
		"deleting":                       {func(m *Member) { m.Phase = fleet.Deleting }, deregistered},
		"tombstone":                      {func(m *Member) { m.Phase = fleet.Deleted }, deregistered},
	} {
		m := well
		c.change(&m)
		if got := desiredOf(m); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		actual, desired state
		read, unread    call
	}{
		{unset, registered, register, none}, {registered, registered, none, none}, {deregistered, registered, register, none},
		{unset, deregistered, deregister, deregister}, {registered, deregistered, deregister, deregister},
		{deregistered, deregistered, none, none},
		{unset, unset, none, none}, {registered, unset, none, none}, {deregistered, unset, none, none},
	} {
		if got := due(c.actual, c.desired, true); got != c.read {
			t.Errorf("state %v, want %v: %v, want %v", c.actual, c.desired, got, c.read)
		}
		if got := due(c.actual, c.desired, false); got != c.unread {
			t.Errorf("state %v, want %v, target unread: %v, want %v", c.actual, c.desired, got, c.unread)
		}
	}
}
