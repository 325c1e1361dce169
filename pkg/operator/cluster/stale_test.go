package cluster_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/cluster"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// staleClient is a client that reads a stale NstanceCluster, if one is set.
type staleClient struct {
	client.Client

	infra *v1beta1.NstanceCluster
}

func (b *staleClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if c, ok := o.(*v1beta1.NstanceCluster); ok && b.infra != nil {
		b.infra.DeepCopyInto(c)
		return nil
	}
	return b.Client.Get(ctx, key, o, opts...)
}

// A status that is based on a stale cache is not written: it would restore outdated conditions
// and times.
func TestStaleCacheDoesNotRevertStatus(t *testing.T) {
	scheme, err := planetest.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	named := metav1.ObjectMeta{Namespace: "ns", Name: name}
	old := &v1beta1.NstanceCluster{ObjectMeta: named}
	old.Finalizers = []string{v1beta1.Finalizer}
	old.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443}
	control := &v1beta1.NstanceControlPlane{ObjectMeta: named}
	api := &staleClient{Client: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(old, control).Build()}
	for _, o := range []client.Object{old, control, &clusterv1.Cluster{ObjectMeta: named}} {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	r := &cluster.Reconciler{
		Client: api, Reader: api.Client, Shards: shardstest.New(t, nil, "a").Set, Now: time.Now, Namespace: "ns", Name: name,
		Endpoint: "https://api.example.com:6443",
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	reconcile := func() (*v1beta1.NstanceCluster, ctrl.Result) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		if err != nil {
			t.Fatal(err)
		}
		var now v1beta1.NstanceCluster
		if err := api.Client.Get(t.Context(), client.ObjectKeyFromObject(old), &now); err != nil {
			t.Fatal(err)
		}
		return &now, result
	}
	was, _ := reconcile()
	meta.SetStatusCondition(&was.Status.Conditions, metav1.Condition{
		Type: v1beta1.ConditionShardReachable, Status: metav1.ConditionTrue, Reason: "Reachable",
	})
	if err := api.Status().Update(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	api.infra = old
	if now, result := reconcile(); now.ResourceVersion != was.ResourceVersion || result.RequeueAfter == 0 {
		t.Errorf("written: %+v, before %+v; requeue after %v", now.Status, was.Status, result.RequeueAfter)
	}
	api.infra = nil
	if now, _ := reconcile(); now.ResourceVersion != was.ResourceVersion {
		t.Errorf("written with an up-to-date cache: %+v, before %+v", now.Status, was.Status)
	}
}
