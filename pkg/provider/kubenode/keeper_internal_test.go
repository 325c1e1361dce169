package kubenode

import (
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// TestToldIsForgotten with the machine, also where its Node went first, as it does with
// the operator.
func TestToldIsForgotten(t *testing.T) {
	const gone, stopped = "knd01m7y23z9me5h9rh8r505a17w4", "knd01m7y23z9me5h9rh8r505a17w5"
	k := &keeper{told: map[fleet.InstanceID]provider.VM{gone: {ID: gone}, stopped: {ID: stopped}}}
	if err := k.follow(t.Context(), []provider.VM{{ID: stopped, State: provider.StateStopped}}, nil); err != nil {
		t.Fatal(err)
	}
	if len(k.told) > 0 {
		t.Errorf("remembered: %v", k.told)
	}
}
