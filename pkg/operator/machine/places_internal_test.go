package machine

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// Machines of two groups are placed alternately, before the cache shows any placement. Each
// group is spread evenly over the shards.
func TestPlaceSpreadsEachGroup(t *testing.T) {
	const perGroup = 10
	groups := []v1beta1.Name{"web", "db"}
	all := map[v1beta1.Name][]v1beta1.NstanceMachine{}
	for _, g := range groups {
		for n := range perGroup {
			m := v1beta1.NstanceMachine{Spec: v1beta1.NstanceMachineSpec{Group: g}}
			m.UID = types.UID(fmt.Sprintf("%s-%d", g, n))
			all[g] = append(all[g], m)
		}
	}
	var p places
	got := map[v1beta1.Name]map[string]int{"web": {}, "db": {}}
	for n := range perGroup {
		for _, g := range groups {
			got[g][p.place(&all[g][n], all[g], func(count map[string]int) string {
				if count["b"] < count["a"] {
					return "b"
				}
				return "a"
			})]++
		}
	}
	for g, on := range got {
		if on["a"] != perGroup/2 || on["b"] != perGroup/2 {
			t.Errorf("group %s is spread as %v, want %d on each shard", g, on, perGroup/2)
		}
	}
}
