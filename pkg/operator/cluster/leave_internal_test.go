package cluster

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// stubClient lists that many pools and machines.
type stubClient struct {
	client.Client

	pools, machines int
	err             error
}

func (o stubClient) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1beta1.NstanceMachinePoolList:
		list.Items = make([]v1beta1.NstanceMachinePool, o.pools)
	case *v1beta1.NstanceMachineList:
		list.Items = make([]v1beta1.NstanceMachine, o.machines)
	}
	return o.err
}

// TestKubeconfigIsNeededByPoolsAndMachines: the kubeconfig of a deleted Cluster is kept while
// there are pools or machines, cached or not.
func TestKubeconfigIsNeededByPoolsAndMachines(t *testing.T) {
	unavailable := errors.New("the API server does not respond")
	for name, test := range map[string]struct {
		cached, live stubClient
		needed       bool
		err          error
	}{
		"machine missing from the cache": {live: stubClient{machines: 1}, needed: true},
		"pool missing from the cache":    {live: stubClient{pools: 1}, needed: true},
		"cached machine":                 {cached: stubClient{machines: 1}, live: stubClient{err: unavailable}, needed: true},
		"API server unavailable":         {live: stubClient{err: unavailable}, err: unavailable},
		"no pool or machine":             {},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Client: test.cached, Reader: test.live, Namespace: "ns", Name: "c"}
			if got, err := r.needed(t.Context(), &state{}); got != test.needed || !errors.Is(err, test.err) {
				t.Errorf("needed: %t, %v; want %t, %v", got, err, test.needed, test.err)
			}
		})
	}
}
