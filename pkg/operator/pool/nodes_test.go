package pool_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// awaitNode waits until a node has these labels and taints, both the pool's and the test's.
func (f *fixture) awaitNode(name string, labels map[string]string, taints ...string) {
	f.t.Helper()
	f.eventually("the labels and taints of "+name, func() error {
		var n corev1.Node
		f.must(f.api.Get(f.t.Context(), client.ObjectKey{Name: name}, &n))
		var got []string
		for _, t := range n.Spec.Taints {
			if t.Key != corev1.TaintNodeNotReady { // the API server sets it on new nodes
				got = append(got, t.ToString())
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, taints) || !maps.Equal(n.Labels, labels) {
			return fmt.Errorf("it has %v and %v, want %v and %v", n.Labels, got, labels, taints)
		}
		return nil
	})
}

func (f *fixture) setLabelsAndTaints(labels map[string]string, taints ...clusterv1.MachineTaint) {
	f.t.Helper()
	f.eventually("the pool is updated", func() error {
		p := f.get("web")
		p.Spec.NodeLabels, p.Spec.NodeTaints = labels, taints
		return f.api.Update(f.t.Context(), p)
	})
}

func taint(key, value string, when clusterv1.MachineTaintPropagation) clusterv1.MachineTaint {
	return clusterv1.MachineTaint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule, Propagation: when}
}

func TestLabelsAndTaintsOfNodes(t *testing.T) {
	const always, first = clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization
	f := startFixture(t, "a")
	f.pool("web", 2, "a")
	f.awaitSizes("web", []string{"a"}, 2)
	f.awaitProviderIDs("web", f.providerIDs("web", "a"))
	ids := f.liveInstances("a", "web")
	f.setLabelsAndTaints(map[string]string{"tier": "web", "zone": "x"}, taint("mine", "1", always), taint("boot", "1", first))
	f.node(ids[0], corev1.Taint{Key: "other", Value: "1", Effect: corev1.TaintEffectNoSchedule})
	f.awaitNode(ids[0], map[string]string{"tier": "web", "zone": "x"}, "boot=1:NoSchedule", "mine=1:NoSchedule", "other=1:NoSchedule")

	// A taint that propagates always is restored, one for initialization is not. A label of another
	// owner is kept.
	f.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ids[0]}},
		`{"metadata":{"labels":{"own":"1","tier":"none"}},"spec":{"taints":null}}`)
	f.awaitNode(ids[0], map[string]string{"tier": "web", "zone": "x", "own": "1"}, "mine=1:NoSchedule")

	// Labels and taints that the pool no longer has are removed. A taint for initialization is not
	// added to an initialized node.
	f.setLabelsAndTaints(map[string]string{"tier": "db"}, taint("boot", "2", first), taint("late", "1", first))
	f.awaitNode(ids[0], map[string]string{"tier": "db", "own": "1"})
	f.node(ids[1])
	f.awaitNode(ids[1], map[string]string{"tier": "db"}, "boot=2:NoSchedule", "late=1:NoSchedule")

	// A taint that changes from always to initialization stays on the node.
	f.setLabelsAndTaints(nil, taint("mine", "1", always))
	f.awaitNode(ids[0], map[string]string{"own": "1"}, "mine=1:NoSchedule")
	f.setLabelsAndTaints(nil, taint("mine", "1", first))
	f.eventually("the taint does not belong to the pool any more", func() error {
		var n corev1.Node
		f.must(f.api.Get(t.Context(), client.ObjectKey{Name: ids[0]}, &n))
		if got := n.Annotations["nstance.dev/from-pool"]; got != "{}" {
			return fmt.Errorf("the annotation is %q", got)
		}
		return nil
	})
	f.awaitNode(ids[0], map[string]string{"own": "1"}, "mine=1:NoSchedule")
}

// The capacity is that of the instance type if the provider knows it, else the minimum of the
// nodes, so that a pod that fits into it fits on every node. It stays when the last node is
// gone.
func TestCapacityFromProviderOrNodes(t *testing.T) {
	f := newFixture(t, "a")
	f.shards.Shard("a").SetCapacity("small", nil)
	f.shards.Shard("a").SetCapacity("huge", &nstancev1.MachineCapacity{CpuMillis: 64000, MemoryBytes: 256 << 30, Arch: "arm64"})
	f.runOperator(f.shards)
	f.pool("web", 2, "a")
	f.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, `{"spec":{"instanceType":"unheard-of"}}`)
	f.awaitSizes("web", []string{"a"}, 2)
	awaitCapacity := func(cpu, memory, arch string) {
		t.Helper()
		f.eventually("the capacity", func() error {
			st := f.get("web").Status
			if st.Capacity.Cpu().Cmp(resource.MustParse(cpu)) != 0 || st.Capacity.Memory().Cmp(resource.MustParse(memory)) != 0 ||
				st.NodeInfo.Architecture != arch || st.NodeInfo.OperatingSystem != "linux" {
				return fmt.Errorf("it is %v, %+v", st.Capacity, st.NodeInfo)
			}
			return nil
		})
	}
	f.awaitProviderIDs("web", f.providerIDs("web", "a"))
	for i, id := range f.liveInstances("a", "web") {
		f.node(id)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id}}
		f.must(f.api.Status().Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
			`{"status":{"capacity":{"cpu":"%d","memory":"%dGi","pods":"110"},"nodeInfo":{"architecture":"amd64"}}}`, 4+i, 16-i))))
	}
	awaitCapacity("4", "15Gi", "amd64")
	f.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, `{"spec":{"instanceType":"huge"}}`)
	awaitCapacity("64", "256Gi", "arm64")
	f.scale("web", 0)
	f.awaitProviderIDs("web", nil)
	awaitCapacity("64", "256Gi", "arm64")
}

// Whatever does not need the workload cluster works without it.
func TestScalingWithoutWorkloadCluster(t *testing.T) {
	f := newFixture(t, "a")
	f.nodes.err = errors.New("no connection")
	f.grace = 1
	f.runOperator(f.shards)
	f.pool("web", 3, "a")
	f.awaitSizes("web", []string{"a"}, 3)
	f.awaitMachines("web", 3)
	f.scale("web", 1)
	f.awaitSizes("web", []string{"a"}, 1)
	f.awaitProviderIDs("web", f.providerIDs("web", "a"))
}

// The Node of an on-demand machine of the pool's group gets the pool's labels and taints, in
// either order of Node and provider ID, and keeps none that the pool drops. Another group's
// does not, and the pool's capacity ignores such a Node.
func TestLabelsAndTaintsOfOnDemandNodes(t *testing.T) {
	const always, first = clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization
	f := startFixture(t, "a")
	f.pool("web", 1, "a")
	f.awaitSizes("web", []string{"a"}, 1)
	f.awaitProviderIDs("web", f.providerIDs("web", "a"))
	f.setLabelsAndTaints(map[string]string{"tier": "web"}, taint("mine", "1", always), taint("boot", "1", first))
	onDemand := func(name, group, id string) *v1beta1.NstanceMachine {
		m := &v1beta1.NstanceMachine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			clusterv1.ClusterNameLabel: clusterName, v1beta1.LabelGroup: group, v1beta1.LabelPodUID: "uid-of-" + name,
		}}}
		m.Spec = v1beta1.NstanceMachineSpec{Group: v1beta1.Name(group), Shard: "a", ProviderID: id}
		f.create(m)
		return m
	}
	early, late, other := f.ns+"-early", f.ns+"-late", f.ns+"-other"
	onDemand("early", "web", "")
	f.node(early)
	f.node(other)
	onDemand("late", "web", "process:///"+late)
	onDemand("other", "db", "process:///"+other)
	f.node(late)
	f.awaitNode(late, map[string]string{"tier": "web"}, "boot=1:NoSchedule", "mine=1:NoSchedule")
	f.patch(&v1beta1.NstanceMachine{ObjectMeta: metav1.ObjectMeta{Name: "early"}}, `{"spec":{"providerID":"process:///`+early+`"}}`)
	f.awaitNode(early, map[string]string{"tier": "web"}, "boot=1:NoSchedule", "mine=1:NoSchedule")

	f.setLabelsAndTaints(map[string]string{"tier": "db"}, taint("boot", "2", first))
	f.awaitNode(early, map[string]string{"tier": "db"}, "boot=1:NoSchedule")
	f.awaitNode(late, map[string]string{"tier": "db"}, "boot=1:NoSchedule")
	f.awaitNode(other, nil)
	if got := f.get("web").Spec.ProviderIDList; len(got) != 1 {
		t.Errorf("the pool lists %v", got)
	}
}

// A Node without a provider ID gets its pool's labels by its name; one that only has the machine's
// address, or says another provider ID, does not.
func TestNodeIsFoundWithoutProviderID(t *testing.T) {
	f := startFixture(t, "a")
	f.pool("web", 3, "a")
	f.awaitSizes("web", []string{"a"}, 3)
	f.awaitProviderIDs("web", f.providerIDs("web", "a"))
	ids := f.liveInstances("a", "web")
	at := func(name, providerID, id string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
		f.must(f.api.Create(t.Context(), n))
		t.Cleanup(func() { _ = f.api.Delete(context.Background(), n) })
		if id != "" {
			ip := f.shards.Shard("a").Instance(id).GetIps()[0]
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
			f.must(f.api.Status().Update(t.Context(), n))
		}
	}
	at("at-"+ids[1], "", ids[1])
	at("k3s-"+ids[2], "k3s://"+ids[2], ids[2])
	at(ids[0], "", "")
	f.setLabelsAndTaints(map[string]string{"tier": "web"})
	f.awaitNode(ids[0], map[string]string{"tier": "web"})
	f.awaitNode("at-"+ids[1], nil)
	f.awaitNode("k3s-"+ids[2], nil)
}
