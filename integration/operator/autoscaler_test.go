//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestTheClusterAutoscaler reads and writes a node group as the Cluster Autoscaler's code does.
// autoscaler simulates it.
func TestTheClusterAutoscaler(t *testing.T) {
	tooLarge := `{ "NSTANCE_DEBUG": "` + strings.Repeat("x", 200_000) + `" }` // see TestNoCapacity
	f := newFixture(t, func(shard, config string) string {
		if shard == dev1 {
			return addGroup(config, "mixed", 0, tooLarge)
		}
		return addGroup(config, "mixed", 0, "{}")
	})
	f.operate()
	f.running("web", 4)
	f.settled("web", 4)
	t.Run("sizes have bounds", func(t *testing.T) { autoscaler{f.in(t), "web"}.setBounds(0, 6) })
	t.Run("a node has one pool and one machine", func(t *testing.T) { autoscaler{f.in(t), "web"}.findsEachNode(4) })
	t.Run("a node that it names goes", func(t *testing.T) { autoscaler{f.in(t), "web"}.removesANode() })
	t.Run("a node with its taint alone goes", func(t *testing.T) { autoscaler{f.in(t), "web"}.removesATaintedNode() })
	t.Run("it takes back what it asked for in vain", func(t *testing.T) { autoscaler{f.in(t), "mixed"}.takesBack() })
	t.Run("from zero", func(t *testing.T) { autoscaler{f.in(t), "web"}.scalesFromZero() })
}

// The Cluster Autoscaler's annotations, and its taint.
const (
	minSize        = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
	maxSize        = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
	capacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"
	toBeDeleted    = "ToBeDeletedByClusterAutoscaler"
)

// autoscaler is the Cluster Autoscaler's view of a MachinePool.
type autoscaler struct {
	*fixture

	name string
}

func (a autoscaler) pool(ctx context.Context) *unstructured.Unstructured {
	a.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachinePool"))
	if err := a.get(ctx, a.name, o); err != nil {
		a.Fatal(err)
	}
	return o
}

// ids returns the nodes that it counts, including those that have not joined yet.
func (a autoscaler) ids() []string {
	a.Helper()
	list, _, err := unstructured.NestedStringSlice(a.pool(a.Context()).Object, "spec", "providerIDList")
	if err != nil {
		a.Fatal(err)
	}
	return list
}

// setBounds makes the pool a node group.
func (a autoscaler) setBounds(least, most int) {
	a.Helper()
	a.annotate(map[string]string{minSize: fmt.Sprint(least), maxSize: fmt.Sprint(most)})
}

func (a autoscaler) annotate(annotations map[string]string) {
	a.Helper()
	var fields []string
	for k, v := range annotations {
		fields = append(fields, fmt.Sprintf("%q:%q", k, v))
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%s}}}`, strings.Join(fields, ","))
	if err := a.api.Patch(a.Context(), a.pool(a.Context()), client.RawPatch(clusterMerge, []byte(patch))); err != nil {
		a.Fatal(err)
	}
}

// findsEachNode by its id: in one pool's list exactly as on the Node, and in one Machine.
func (a autoscaler) findsEachNode(count int) {
	a.eventually("each node is found", func(ctx context.Context) error {
		var pools clusterv1.MachinePoolList
		var machines clusterv1.MachineList
		var nodes corev1.NodeList
		err := errors.Join(a.api.List(ctx, &pools, client.InNamespace(a.namespace)), a.api.List(ctx, &machines, client.InNamespace(a.namespace)),
			a.api.List(ctx, &nodes, client.MatchingLabels{v1beta1.LabelGroup: a.name}))
		if err != nil || len(nodes.Items) != count {
			return fmt.Errorf("%d nodes: %w", len(nodes.Items), err)
		}
		for _, n := range nodes.Items {
			id, inPools, inMachines := n.Spec.ProviderID, 0, 0
			for _, p := range pools.Items {
				inPools += times(id, p.Spec.ProviderIDList...)
			}
			for _, m := range machines.Items {
				inMachines += times(id, m.Spec.ProviderID)
			}
			if id == "" || !slices.Contains(a.ids(), id) || inPools != 1 || inMachines != 1 {
				return fmt.Errorf("the node %s has the id %q, the pool %v; it is in %d pools and %d machines", n.Name, id, a.ids(), inPools, inMachines)
			}
		}
		return nil
	})
}

// times counts how often an id is in a list. It compares what follows the last slash.
func times(id string, all ...string) (n int) {
	for _, of := range all {
		if of[strings.LastIndex(of, "/")+1:] == id[strings.LastIndex(id, "/")+1:] {
			n++
		}
	}
	return n
}

// taint marks a node for removal, so that nothing new is scheduled to it.
func (a autoscaler) taint(node string) {
	a.Helper()
	n := &corev1.Node{}
	a.eventually("the node is tainted", func(ctx context.Context) error {
		if err := a.api.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
			return err
		}
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: toBeDeleted, Value: "1700000000", Effect: corev1.TaintEffectNoSchedule})
		return a.api.Update(ctx, n)
	})
}

// removesANode as the Cluster Autoscaler does: the taint, the annotation on the Machine with its
// id, and one replica less.
func (a autoscaler) removesANode() {
	before := a.settled(a.name, 4)
	victim := before[2]
	a.taint(victim)
	a.condemn(victim)
	a.scale(a.name, 3)
	a.onlyGoes(victim, before)
}

// removesATaintedNode does so without the annotation.
func (a autoscaler) removesATaintedNode() {
	before := a.settled(a.name, 3)
	victim := before[1]
	a.taint(victim)
	a.scale(a.name, 2)
	a.onlyGoes(victim, before)
}

func (a autoscaler) onlyGoes(victim string, before []string) {
	a.Helper()
	a.running(a.name, len(before)-1)
	want := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return id == victim })
	if after := a.settled(a.name, len(before)-1); !slices.Equal(after, want) {
		a.Errorf("%v are there, want %v: %s was to go", after, want, victim)
	}
}

// takesBack reduces the replicas after a machine did not come in time: no existing node may be
// removed for it. Here one shard has no capacity.
func (a autoscaler) takesBack() {
	a.scale(a.name, 2)
	a.eventually("one comes and one does not", func(context.Context) error {
		running := 0
		for _, i := range a.instances(a.name, dev2) {
			if i.Phase == "running" {
				running++
			}
		}
		if sizes := a.sizes(a.name); sizes != [2]int{1, 1} || running != 1 || len(a.ids()) != 1 {
			return fmt.Errorf("%v, %d running, ids %v", sizes, running, a.ids())
		}
		return nil
	})
	before := a.ids()
	a.scale(a.name, 1)
	a.eventually("one shard has one less", func(context.Context) error {
		if sizes := a.sizes(a.name); sizes[0]+sizes[1] != 1 {
			return fmt.Errorf("%v", sizes)
		}
		return nil
	})
	if sizes := a.sizes(a.name); sizes != [2]int{0, 1} {
		a.Errorf("the shards have %v", sizes)
	}
	a.settled(a.name, 1)
	if after := a.ids(); !slices.Equal(after, before) {
		a.Errorf("%v are there, want %v", after, before)
	}
}
