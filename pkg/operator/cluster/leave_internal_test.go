package cluster

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// objects has so many pools and machines.
type objects struct {
	client.Client

	pools, machines int
	err             error
}

func (o objects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1beta1.NstanceMachinePoolList:
		list.Items = make([]v1beta1.NstanceMachinePool, o.pools)
	case *v1beta1.NstanceMachineList:
		list.Items = make([]v1beta1.NstanceMachine, o.machines)
	}
	return o.err
}

// TestTheWayStaysForWhatTheCacheLacks: the way to the API server of a Cluster that goes is
// kept as long as there are pools or machines, seen or not.
func TestTheWayStaysForWhatTheCacheLacks(t *testing.T) {
	silent := errors.New("the API server does not answer")
	for name, test := range map[string]struct {
		cached, real objects
		needed       bool
		err          error
	}{
		"a machine is not seen": {real: objects{machines: 1}, needed: true},
		"a pool is not seen":    {real: objects{pools: 1}, needed: true},
		"a machine is seen":     {cached: objects{machines: 1}, real: objects{err: silent}, needed: true},
		"the server is silent":  {real: objects{err: silent}, err: silent},
		"there is nothing":      {},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Client: test.cached, Reader: test.real, Namespace: "ns", Name: "c"}
			if got, err := r.needed(t.Context(), &state{}); got != test.needed || !errors.Is(err, test.err) {
				t.Errorf("it is needed: %t, %v; want %t, %v", got, err, test.needed, test.err)
			}
		})
	}
}
