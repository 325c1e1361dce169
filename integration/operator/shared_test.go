//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestTwoPodsOfOneGroup: bound pods run on a machine of their own each. Pods that are not bound
// share one: when the pod that it was requested for is gone, the idle machine goes, and the
// running pod keeps its node.
func TestTwoPodsOfOneGroup(t *testing.T) {
	f := newFixture(t, func(shard, config string) string {
		if shard != dev1 {
			return config
		}
		return addGroup(config, "builders", 0, "{}")
	})
	f.operate()
	f.running("web", 4)
	builder := func(name string, gates []corev1.PodSchedulingGate, selector ...string) *corev1.Pod {
		return f.pod(name, func(p *corev1.Pod) {
			p.Annotations[v1beta1.AnnotationOnDemandGroup] = "builders"
			p.Spec.SchedulingGates = gates
			p.Spec.NodeSelector = map[string]string{v1beta1.LabelGroup: "builders"}
			if len(selector) > 0 {
				p.Spec.NodeSelector[corev1.LabelHostname] = selector[0]
			}
		})
	}
	gate := []corev1.PodSchedulingGate{{Name: v1beta1.GateMachine}}
	one, two := builder("bound-one", gate), builder("bound-two", gate)
	f.onDemand(2)
	f.runs(one)
	f.runs(two)
	if one.Spec.NodeName == two.Spec.NodeName || f.nodeOf(one) != one.Spec.NodeName || f.nodeOf(two) != two.Spec.NodeName {
		t.Errorf("the pods run on %s and %s, their machines are %s and %s",
			one.Spec.NodeName, two.Spec.NodeName, f.nodeOf(one), f.nodeOf(two))
	}
	f.deletePod(one.Name)
	f.onDemand(1)
	f.staysOn(two, two.Spec.NodeName)
	f.deletePod(two.Name)
	f.onDemand(0)

	first := builder("first", nil)
	f.onDemand(1)
	f.runs(first)
	second := builder("second", nil, first.Spec.NodeName)
	f.onDemand(2)
	f.runs(second)
	if second.Spec.NodeName != first.Spec.NodeName {
		t.Fatalf("the second pod runs on %s, the first on %s", second.Spec.NodeName, first.Spec.NodeName)
	}
	f.deletePod(first.Name)
	f.onDemand(1)
	f.staysOn(second, second.Spec.NodeName)
	if node := f.nodeOf(second); node != second.Spec.NodeName {
		t.Errorf("the second pod's machine is %s", node)
	}
	f.event("OnDemandExchanged", "Pod", second.Name, "is its own now")
	f.deletePod(second.Name)
	f.onDemand(0)
}

// nodeOf returns the node of a pod's own machine.
func (f *fixture) nodeOf(p *corev1.Pod) string {
	f.Helper()
	var list clusterv1.MachineList
	err := f.api.List(f.Context(), &list, client.InNamespace(f.namespace), client.MatchingLabels{v1beta1.LabelPodUID: string(p.UID)})
	if err != nil {
		f.Fatal(err)
	}
	if len(list.Items) != 1 {
		return fmt.Sprintf("one of %d", len(list.Items))
	}
	return list.Items[0].Status.NodeRef.Name
}

// staysOn checks that a pod is neither evicted nor deleted, and its node not cordoned.
func (f *fixture) staysOn(p *corev1.Pod, node string) {
	f.Helper()
	f.consistently(10*time.Second, "the pod "+p.Name+" stays", func(ctx context.Context) error {
		var n corev1.Node
		if err := f.api.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return err
		}
		if n.Spec.Unschedulable {
			return fmt.Errorf("the node %s is cordoned", node)
		}
		return f.untouched(ctx, p)
	})
}
