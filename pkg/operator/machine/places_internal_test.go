package machine

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// Machines of two groups are placed in turns, before the cache shows where any of them
// is: each group is spread over the shards.
func TestGroupsArePlacedEachOnItsOwn(t *testing.T) {
	const each = 10
	groups := []v1beta1.Name{"web", "db"}
	all := map[v1beta1.Name][]v1beta1.NstanceMachine{}
	for _, g := range groups {
		for n := range each {
			m := v1beta1.NstanceMachine{Spec: v1beta1.NstanceMachineSpec{Group: g}}
			m.UID = types.UID(fmt.Sprintf("%s-%d", g, n))
			all[g] = append(all[g], m)
		}
	}
	var p places
	got := map[v1beta1.Name]map[string]int{"web": {}, "db": {}}
	for n := range each {
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
		if on["a"] != each/2 || on["b"] != each/2 {
			t.Errorf("group %s is spread as %v, want %d on each", g, on, each/2)
		}
	}
}
