package operators_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/fleet"
)

// conditions returns the types of the true conditions of the only group.
func (f *fixture) conditions() string {
	f.t.Helper()
	var held []string
	for _, c := range f.listGroups("default").GetGroups()[0].GetConditions() {
		if c.GetStatus() == "True" {
			held = append(held, c.GetType())
		}
	}
	return strings.Join(held, " ")
}

// TestFailedCreateIsToldOnce: a group whose creates fail reports that once, and other problems
// beside it.
func TestFailedCreateIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 1)
		f.failing[web] = fleet.CreatesFailing{Failures: 2, Reason: "ProviderError", Message: create(t, 2) + ": no such image"}
		for _, c := range []struct {
			reason, message, want string
		}{
			{"ProviderError", create(t, 1) + ": no such image", "CreatesFailing"},
			{"ProviderError", create(t, 1) + ": the network is down", "CreatesFailing Degraded"},
			{"LoadBalancerError", "no such target group", "CreatesFailing Degraded"},
		} {
			f.locked(func() { f.trouble = fleet.Problem{Reason: c.reason, Message: c.message, Group: web} })
			if have := f.conditions(); have != c.want {
				t.Errorf("%s: %s: the conditions are %q, want %q", c.reason, c.message, have, c.want)
			}
		}
	})
}

// TestPausedRolloutIsTold: as long as there is something to resume.
func TestPausedRolloutIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 0)
		for removed, want := range map[bool]string{false: "Ready RolloutPaused", true: "Ready Removed"} {
			f.locked(func() {
				g := f.groups[web]
				g.RolloutPaused, g.Removed = true, removed
				f.groups[web] = g
			})
			if have := f.conditions(); have != want {
				t.Errorf("removed %v: the conditions are %q, want %q", removed, have, want)
			}
		}
	})
}

// TestDisabledGroupIsNotEmptied: a disabled group, which is left as it is, does not report
// that it is being emptied.
func TestDisabledGroupIsNotEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 0)
		for disabled, want := range map[string]string{"": "Ready Removed", "it can't be read": "Ready Disabled"} {
			f.locked(func() {
				g := f.groups[web]
				g.Removed, g.Disabled = true, disabled
				f.groups[web] = g
			})
			if have := f.conditions(); have != want {
				t.Errorf("disabled %q: the conditions are %q, want %q", disabled, have, want)
			}
		}
	})
}
