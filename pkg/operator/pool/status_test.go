package pool_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/pool"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

func TestStatusFromShards(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.shards.Shard("a").Static("web", 1, "knd")
	f.shards.Shard("b").AddGroup("web", 1, "knd")
	f.shards.Synced()
	f.runOperator(f.shards)
	f.pool("web", 2, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 1, 1)
	f.eventually("the status", func() error {
		st := f.get("web").Status
		if !deref(st.Ready, false) || !deref(st.Initialization.Provisioned, false) || !deref(st.IsStatic, false) ||
			st.Template != "knd" || st.InfrastructureMachineKind != "NstanceMachine" || deref(st.Replicas, 0) != 2 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	f.shards.Shard("a").Dynamic("web")
	f.eventually("the group is not static any more", func() error {
		if st := f.get("web").Status; deref(st.IsStatic, true) {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

// staleClient is a client that reads a stale pool, if one is set.
type staleClient struct {
	client.Client

	pool *v1beta1.NstanceMachinePool
}

func (b *staleClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if p, ok := o.(*v1beta1.NstanceMachinePool); ok && b.pool != nil {
		b.pool.DeepCopyInto(p)
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
	old := &v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}, Template: "knd"},
	}
	api := &staleClient{Client: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(old).Build()}
	if err := api.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	r := &pool.Reconciler{Client: api, Reader: api.Client, Shards: shardstest.New(t, nil, "a").Set, Now: time.Now}
	key := client.ObjectKeyFromObject(old)
	reconcile := func() (*v1beta1.NstanceMachinePool, ctrl.Result) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err != nil {
			t.Fatal(err)
		}
		var now v1beta1.NstanceMachinePool
		if err := api.Client.Get(t.Context(), key, &now); err != nil {
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
	api.pool = old
	if now, result := reconcile(); now.ResourceVersion != was.ResourceVersion || result.RequeueAfter == 0 {
		t.Errorf("written: %+v, before %+v; requeue after %v", now.Status, was.Status, result.RequeueAfter)
	}
	api.pool = nil
	if now, _ := reconcile(); now.ResourceVersion != was.ResourceVersion {
		t.Errorf("written with an up-to-date cache: %+v, before %+v", now.Status, was.Status)
	}
}

func TestCreatesFailingOfParts(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 2, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 1, 1)
	f.eventually("the part on b has the condition", func() error {
		g := f.part("web--b")
		meta.SetStatusCondition(&g.Status.Conditions, metav1.Condition{
			Type: v1beta1.ConditionCreatesFailing, Status: metav1.ConditionTrue, Reason: "NoCapacity", Message: "no capacity for small",
		})
		return f.api.Status().Update(t.Context(), g)
	})
	f.eventually("the pool has the condition", func() error {
		c := meta.FindStatusCondition(f.get("web").Status.Conditions, v1beta1.ConditionCreatesFailing)
		if c == nil || c.Reason != "NoCapacity" || c.Message != "shard b: no capacity for small" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func TestPoolWaitsForMachinePool(t *testing.T) {
	f := startFixture(t, "a")
	f.create(&v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}, Template: "knd"},
	})
	f.eventually("the pool waits", func() error {
		p := f.get("web")
		c := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady)
		if c == nil || c.Reason != "WaitingForMachinePool" || p.Status.Ready != nil {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	if got := f.sizes("web", "a"); got[0] != -1 {
		t.Errorf("a part of size %d was created", got[0])
	}
}

func TestReplicasAreLimited(t *testing.T) {
	f := startFixture(t, "a")
	f.shards.Synced()
	f.shards.Shard("a").Stop() // so that it does not begin to create them
	f.pool("web", 1_000_000_000, "a")
	f.eventually("the pool reports the limit", func() error {
		c := meta.FindStatusCondition(f.get("web").Status.Conditions, v1beta1.ConditionReady)
		if c == nil || c.Message != "spec.replicas of MachinePool web: 1000000000, want at most 10000" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if got := f.sizes("web", "a"); got[0] > 10000 {
		t.Errorf("the part has size %d", got[0])
	}
}
