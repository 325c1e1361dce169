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

// versions are the resource versions of all objects of the namespace, and of a node.
func (s *stage) versions(node string) map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for _, list := range []client.ObjectList{
		&v1beta1.NstanceMachinePoolList{}, &v1beta1.NstanceShardGroupList{}, &v1beta1.NstanceMachineList{},
		&clusterv1.MachinePoolList{}, &clusterv1.MachineList{},
	} {
		s.must(s.api.List(s.t.Context(), list, client.InNamespace(s.ns)))
		items, err := meta.ExtractList(list)
		s.must(err)
		for _, item := range items {
			o := item.(client.Object)
			all[fmt.Sprintf("%T %s", o, o.GetName())] = o.GetResourceVersion()
		}
	}
	n := &metav1.PartialObjectMetadata{}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	s.must(s.api.Get(s.t.Context(), client.ObjectKey{Name: node}, n))
	all["node"] = n.ResourceVersion
	return all
}

// While nothing changes nothing is written, however often all of it is looked at, and
// whoever applies the same again.
func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	s := newStage(t, "a", "b")
	s.sync = 100 * time.Millisecond
	s.run(s.world)
	s.pool("web", 3, "a", "b")
	s.settled("web", []string{"a", "b"}, 2, 1)
	s.machines("web", 3)
	s.listed("web", s.providerIDs("web", "a", "b"))
	id := s.living("a", "web")[0]
	s.dress(map[string]string{"tier": "web"}, taint("mine", "1", clusterv1.MachineTaintPropagationAlways))
	s.node(id)
	s.dressed(id, map[string]string{"tier": "web"}, "mine=1:NoSchedule")
	s.gitops(3)
	s.eventually("the pool is ready", func() error {
		p := s.get("web")
		for _, c := range p.Status.Conditions {
			if c.ObservedGeneration != p.Generation || (c.Type == v1beta1.ConditionReady && c.Status != metav1.ConditionTrue) {
				return fmt.Errorf("of generation %d: %+v", p.Generation, c)
			}
		}
		var mp clusterv1.MachinePool
		s.must(s.api.Get(t.Context(), s.key("web"), &mp))
		if mp.Annotations[templateLabels] == "" || mp.Annotations[templateTaints] == "" {
			return fmt.Errorf("its MachinePool has the annotations %v", mp.Annotations)
		}
		return nil
	})
	before, looked := s.versions(id), s.nodes.asked.Load()
	planetest.Consistently(t, 3*time.Second, "nothing is written", func(context.Context) error {
		s.gitops(3)
		if now := s.versions(id); !maps.Equal(now, before) {
			return fmt.Errorf("%v, before %v", now, before)
		}
		return nil
	})
	if n := s.nodes.asked.Load() - looked; n < 15 {
		t.Errorf("nodes were looked for %d times: nothing was done that could have written", n)
	}
	s.gitops(5) // and it wins
	s.settled("web", []string{"a", "b"}, 3, 2)
}

// gitops applies both objects of a pool as a tool does that knows nothing else.
func (s *stage) gitops(replicas int64) {
	s.t.Helper()
	mp := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": replicas, "clusterName": clusterName}}}
	mp.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachinePool"))
	infra := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": "web", "shards": []any{"a", "b"}, "template": "knd",
	}}}
	infra.SetGroupVersionKind(v1beta1.GroupVersion().WithKind("NstanceMachinePool"))
	for _, o := range []*unstructured.Unstructured{mp, infra} {
		o.SetName("web")
		o.SetNamespace(s.ns)
		s.must(s.api.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("gitops"), client.ForceOwnership))
	}
}

func TestAPausedPoolIsLeftAlone(t *testing.T) {
	s := start(t, "a")
	s.pool("web", 1, "a")
	s.settled("web", []string{"a"}, 1)
	s.patch(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName}}, `{"spec":{"paused":true}}`)
	is := func(want metav1.ConditionStatus) {
		t.Helper()
		s.eventually("the pool says whether it is paused", func() error {
			if c := meta.FindStatusCondition(s.get("web").Status.Conditions, v1beta1.ConditionPaused); c == nil || c.Status != want {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	}
	is(metav1.ConditionTrue)
	s.scale("web", 3)
	planetest.Consistently(t, time.Second, "nothing is scaled", func(context.Context) error {
		if got := s.sizes("web", "a"); got[0] != 1 {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
	s.patch(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName}}, `{"spec":{"paused":false}}`)
	s.settled("web", []string{"a"}, 3)
	is(metav1.ConditionFalse)
}

// A pool goes once all shards have let go of its group.
func TestADeletedPoolWaitsForItsShards(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 2, "a", "b")
	s.settled("web", []string{"a", "b"}, 1, 1)
	s.machines("web", 2)
	s.world.Shard("b").Stop()
	s.must(s.api.Delete(t.Context(), s.get("web")))
	s.eventually("a has no group any more, and the pool waits for b", func() error {
		c := meta.FindStatusCondition(s.get("web").Status.Conditions, v1beta1.ConditionReady)
		if g := s.world.Shard("a").Group("web"); g != nil || c.Message != "waits for the shards that remove the group: b" {
			return fmt.Errorf("%v %+v", g, c)
		}
		return nil
	})
	s.world.Shard("b").Start()
	s.eventually("the pool is gone", func() error {
		if err := s.api.Get(t.Context(), s.key("web"), &v1beta1.NstanceMachinePool{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if got := s.sizes("web", "a", "b"); got[0] != -1 || got[1] != -1 {
		t.Errorf("the parts are %v", got)
	}
	var left clusterv1.MachineList
	s.must(s.api.List(t.Context(), &left, client.InNamespace(s.ns)))
	for _, m := range left.Items {
		if m.DeletionTimestamp.IsZero() {
			t.Errorf("Machine %s is left", m.Name)
		}
	}
}
