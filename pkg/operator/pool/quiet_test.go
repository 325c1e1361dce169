package pool_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// objects returns all objects of the namespace and a node, as text by name.
func (f *fixture) objects(node string) map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, list := range []client.ObjectList{
		&v1beta1.NstanceMachinePoolList{}, &v1beta1.NstanceShardGroupList{}, &v1beta1.NstanceMachineList{},
		&clusterv1.MachinePoolList{}, &clusterv1.MachineList{},
	} {
		f.must(f.api.List(f.t.Context(), list, client.InNamespace(f.ns)))
		items, err := meta.ExtractList(list)
		f.must(err)
		for _, item := range items {
			o := item.(client.Object)
			all[fmt.Sprintf("%T %s", o, o.GetName())] = planetest.Text(o)
		}
	}
	n := &metav1.PartialObjectMetadata{}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	f.must(f.api.Get(f.t.Context(), client.ObjectKey{Name: node}, n))
	all["node"] = planetest.Text(n)
	return all
}

// Without changes nothing is written, however often the objects are reconciled or applied
// again.
func TestNoWritesWithoutChanges(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.resync = 100 * time.Millisecond
	f.runOperator(f.shards)
	f.pool("web", 3, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 2, 1)
	f.awaitMachines("web", 3)
	f.awaitProviderIDs("web", f.providerIDs("web", "a", "b"))
	id := f.liveInstances("a", "web")[0]
	f.setLabelsAndTaints(map[string]string{"tier": "web"}, taint("mine", "1", clusterv1.MachineTaintPropagationAlways))
	f.node(id)
	f.awaitNode(id, map[string]string{"tier": "web"}, "mine=1:NoSchedule")
	f.applyManifests(3)
	f.eventually("the pool is ready", func() error {
		p := f.get("web")
		for _, c := range p.Status.Conditions {
			if c.ObservedGeneration != p.Generation || (c.Type == v1beta1.ConditionReady && c.Status != metav1.ConditionTrue) {
				return fmt.Errorf("of generation %d: %+v", p.Generation, c)
			}
		}
		var mp clusterv1.MachinePool
		f.must(f.api.Get(t.Context(), f.key("web"), &mp))
		if mp.Annotations[templateLabels] == "" || mp.Annotations[templateTaints] == "" {
			return fmt.Errorf("the MachinePool has the annotations %v", mp.Annotations)
		}
		return nil
	})
	// One more write may follow, but not one with every reconcile.
	rest := planetest.AtRest(t, 3*time.Second, "the pool", func(context.Context) (map[string]string, error) {
		f.applyManifests(3)
		return f.objects(id), nil
	})
	before := f.nodes.lookups.Load()
	f.eventually("the pool is reconciled repeatedly", func() error {
		f.applyManifests(3)
		if n := f.nodes.lookups.Load() - before; n < 15 {
			return fmt.Errorf("%d node lookups, want at least 15 to show that reconciles took place", n)
		}
		return nil
	})
	if now := f.objects(id); !maps.Equal(now, rest) {
		t.Fatalf("written without a change: %s", planetest.Differences(rest, now))
	}
	f.applyManifests(5) // another size takes effect
	f.awaitSizes("web", []string{"a", "b"}, 3, 2)
}

// applyManifests applies both objects of a pool with server-side apply, as GitOps tools do.
func (f *fixture) applyManifests(replicas int64) {
	f.t.Helper()
	mp := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": replicas, "clusterName": clusterName}}}
	mp.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachinePool"))
	infra := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": "web", "shards": []any{"a", "b"}, "template": "knd",
	}}}
	infra.SetGroupVersionKind(v1beta1.GroupVersion().WithKind("NstanceMachinePool"))
	for _, o := range []*unstructured.Unstructured{mp, infra} {
		o.SetName("web")
		o.SetNamespace(f.ns)
		f.must(f.api.Apply(f.t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("gitops"), client.ForceOwnership))
	}
}

func TestPausedPool(t *testing.T) {
	f := startFixture(t, "a")
	f.pool("web", 1, "a")
	f.awaitSizes("web", []string{"a"}, 1)
	f.patch(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName}}, `{"spec":{"paused":true}}`)
	awaitPaused := func(want metav1.ConditionStatus) {
		t.Helper()
		f.eventually("the condition Paused", func() error {
			if c := meta.FindStatusCondition(f.get("web").Status.Conditions, v1beta1.ConditionPaused); c == nil || c.Status != want {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	}
	awaitPaused(metav1.ConditionTrue)
	f.scale("web", 3)
	planetest.Consistently(t, time.Second, "the part keeps its size", func(context.Context) error {
		if got := f.sizes("web", "a"); got[0] != 1 {
			return fmt.Errorf("sizes %v", got)
		}
		return nil
	})
	f.patch(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName}}, `{"spec":{"paused":false}}`)
	f.awaitSizes("web", []string{"a"}, 3)
	awaitPaused(metav1.ConditionFalse)
}

// A deleted pool is released once all shards have removed its group.
func TestDeletedPoolWaitsForShards(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 2, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 1, 1)
	f.awaitMachines("web", 2)
	f.shards.Shard("b").Stop()
	f.must(f.api.Delete(t.Context(), f.get("web")))
	f.eventually("the group is gone from a, and the pool waits for b", func() error {
		c := meta.FindStatusCondition(f.get("web").Status.Conditions, v1beta1.ConditionReady)
		if g := f.shards.Shard("a").Group("web"); g != nil || c.Message != "waiting for shards to remove the group: b" {
			return fmt.Errorf("%v %+v", g, c)
		}
		return nil
	})
	f.shards.Shard("b").Start()
	f.eventually("the pool is gone", func() error {
		if err := f.api.Get(t.Context(), f.key("web"), &v1beta1.NstanceMachinePool{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %w", err)
		}
		return nil
	})
	if got := f.sizes("web", "a", "b"); got[0] != -1 || got[1] != -1 {
		t.Errorf("sizes of the parts: %v", got)
	}
	var left clusterv1.MachineList
	f.must(f.api.List(t.Context(), &left, client.InNamespace(f.ns)))
	for _, m := range left.Items {
		if m.DeletionTimestamp.IsZero() {
			t.Errorf("Machine %s is not being deleted", m.Name)
		}
	}
}
