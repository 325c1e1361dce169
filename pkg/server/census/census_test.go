package census_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/census"
)

// TestCompareTwins: of two VMs with the id of one record, a dead one neither hides the living one
// nor takes it away.
func TestCompareTwins(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	vm := func(id string, state provider.State, age time.Duration) provider.VM {
		return provider.VM{ID: "knd-1", ProviderID: id, State: state, CreatedAt: at.Add(-age)}
	}
	old, young := vm("a", provider.StateStopped, time.Hour), vm("b", provider.StateRunning, time.Minute)
	older := vm("a", provider.StatePending, time.Hour)
	for name, c := range map[string]struct {
		known   string // provider id of the record
		phase   fleet.Phase
		vms     []provider.VM
		present string
		down    int
		missing int
		left    []string
	}{
		"the young one lives":            {"", fleet.Running, []provider.VM{old, young}, "b", 0, 0, []string{"a"}},
		"in the other order":             {"", fleet.Running, []provider.VM{young, old}, "b", 0, 0, []string{"a"}},
		"both live: the oldest":          {"", fleet.Running, []provider.VM{young, older}, "a", 0, 0, []string{"b"}},
		"neither lives":                  {"", fleet.Running, []provider.VM{old, vm("b", provider.StateFailed, 0)}, "", 1, 0, []string{"b"}},
		"the living one is recorded":     {"b", fleet.Running, []provider.VM{old, young}, "b", 0, 0, []string{"a"}},
		"the dead one is recorded":       {"a", fleet.Running, []provider.VM{old, young}, "", 1, 0, []string{"b"}},
		"the recorded one is gone":       {"c", fleet.Running, []provider.VM{old, young}, "", 0, 1, nil},
		"the recorded one is terminated": {"c", fleet.Running, []provider.VM{vm("c", provider.StateDeleted, 0), young}, "", 0, 1, nil},
		"a terminated one is no twin":    {"", fleet.Running, []provider.VM{vm("a", provider.StateDeleted, time.Hour), young}, "b", 0, 0, nil},
		"deleting, and down":             {"a", fleet.Deleting, []provider.VM{old}, "", 0, 0, nil},
		"of a tombstone":                 {"a", fleet.Deleted, []provider.VM{old, young}, "", 0, 0, []string{"a", "b"}},
	} {
		record := fleet.Instance{ID: "knd-1", Phase: c.phase, Provider: fleet.ProviderRef{ID: c.known}}
		for _, claimed := range []bool{false, true} { // by a malformed object, too: it may be the twin's
			got := census.Compare([]fleet.Instance{record}, census.Claims{IDs: map[fleet.InstanceID]bool{"knd-1": claimed}}, c.vms)
			present, left := "", []string(nil)
			for _, p := range got.Present {
				present += p.VM.ProviderID
			}
			for _, vm := range got.Leftovers {
				left = append(left, vm.ProviderID)
			}
			slices.Sort(left)
			want := c.left
			if claimed {
				want = nil
			}
			if present != c.present || len(got.Down) != c.down || len(got.Missing) != c.missing || !slices.Equal(left, want) {
				t.Errorf("%s, claimed %t: %+v", name, claimed, got)
			}
			if len(got.Orphans) > 0 {
				t.Errorf("%s: orphans %+v", name, got.Orphans)
			}
		}
	}
}
