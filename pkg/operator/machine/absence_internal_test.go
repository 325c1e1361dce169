package machine

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// stubClient returns the same result for each Get.
type stubClient struct {
	client.Client

	err error // nil: the object exists
}

func (p stubClient) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if p.err == nil {
		o.SetName(key.Name)
	}
	return p.err
}

// TestShardGroupMissingFromCache: the NstanceShardGroup of a pool's instance counts as deleted
// only if the API server, not just the cache, has none.
func TestShardGroupMissingFromCache(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "nstanceshardgroups"}, "web--a")
	unavailable := errors.New("the API server does not respond")
	for name, test := range map[string]struct {
		cached, live error
		exists       bool
		err          error
	}{
		"missing only from the cache": {cached: missing, exists: true},
		"deleted":                     {cached: missing, live: missing},
		"API server unavailable":      {cached: missing, live: unavailable, err: unavailable},
		"cached":                      {live: unavailable, exists: true},
		"cache unavailable":           {cached: unavailable, err: unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Client: stubClient{err: test.cached}, Reader: stubClient{err: test.live}}
			m := &v1beta1.NstanceMachine{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i"}, Spec: v1beta1.NstanceMachineSpec{Group: "web", Shard: "a"},
			}
			got, err := r.part(t.Context(), m)
			if (got != nil) != test.exists || !errors.Is(err, test.err) {
				t.Errorf("got %v, %v; want it to exist: %t, error %v", got, err, test.exists, test.err)
			}
		})
	}
}
