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

// parts answers each read of a part alike.
type parts struct {
	client.Client

	err error // nil: it is there
}

func (p parts) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if p.err == nil {
		o.SetName(key.Name)
	}
	return p.err
}

// TestAPartTheCacheLacks: a pool's instance is left to others only if the API server has no
// part of the pool that it is counted in.
func TestAPartTheCacheLacks(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "nstanceshardgroups"}, "web--a")
	silent := errors.New("the API server does not answer")
	for name, test := range map[string]struct {
		cached, real error
		there        bool
		err          error
	}{
		"the cache lacks it":   {cached: missing, there: true},
		"it is gone":           {cached: missing, real: missing},
		"the server is silent": {cached: missing, real: silent, err: silent},
		"the cache has it":     {real: silent, there: true},
		"the cache is no help": {cached: silent, err: silent},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Client: parts{err: test.cached}, Reader: parts{err: test.real}}
			m := &v1beta1.NstanceMachine{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i"}, Spec: v1beta1.NstanceMachineSpec{Group: "web", Shard: "a"},
			}
			got, err := r.part(t.Context(), m)
			if (got != nil) != test.there || !errors.Is(err, test.err) {
				t.Errorf("the part is %v, %v; want it there: %t, %v", got, err, test.there, test.err)
			}
		})
	}
}
