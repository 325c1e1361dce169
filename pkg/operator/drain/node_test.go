package drain_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// addNodeOf creates a Node as any admitted kubelet could, and waits for the operator's cache: a
// Node that appears after the start of a drain delays it.
func (f *fixture) addNodeOf(name, providerID string) *corev1.Node {
	f.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.ProviderID = providerID
	f.create(n)
	f.eventually("the operator's cache has Node "+name, func() bool {
		return f.cached.Get(f.t.Context(), client.ObjectKeyFromObject(n), &corev1.Node{}) == nil
	})
	return n
}

// awaitCondition waits until a condition of the NstanceMachine has that status and reason, and
// returns its message.
func (f *fixture) awaitCondition(kind string, want metav1.ConditionStatus, reason string) (message string) {
	f.t.Helper()
	f.eventually("the condition "+kind+" is "+string(want), func() bool {
		var m v1beta1.NstanceMachine
		f.must(f.plane.Client.Get(f.t.Context(), client.ObjectKeyFromObject(f.machine), &m))
		c := meta.FindStatusCondition(m.Status.Conditions, kind)
		if c != nil {
			message = c.Message
		}
		return c != nil && c.Status == want && c.Reason == reason
	})
	return message
}

// ambiguousNodes returns the metric.
func (f *fixture) ambiguousNodes() float64 {
	f.t.Helper()
	all, err := metrics.Registry.Gather()
	f.must(err)
	for _, m := range all {
		if m.GetName() == "nstance_operator_ambiguous_nodes" {
			return m.GetMetric()[0].GetGauge().GetValue()
		}
	}
	f.t.Fatal("there is no such metric")
	return 0
}

// A second Node has the provider ID of the instance: neither is drained, and the drain is not
// acknowledged, until that Node is gone.
func TestTwoNodesWithOneProviderID(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(nil)
	p := f.addPod("p")
	second := f.addNodeOf("other-"+f.id, f.node.Spec.ProviderID)
	f.drain(long)
	f.awaitEvents("NodeAmbiguous", []string{f.node.Name, second.Name, f.node.Spec.ProviderID}, "Machine", "NstanceMachine", "Node")
	said := f.awaitCondition(v1beta1.ConditionNodeFound, metav1.ConditionFalse, "NodeAmbiguous")
	if !strings.Contains(said, second.Name) || !strings.Contains(said, f.node.Spec.ProviderID) || f.ambiguousNodes() != 1 {
		t.Errorf("the condition says %q; %v nodes are ambiguous, want 1", said, f.ambiguousNodes())
	}
	if f.cordoned() || f.evicted(p) || f.acknowledged() {
		t.Fatal("an ambiguous node was drained")
	}
	f.must(f.plane.Client.Delete(t.Context(), second))
	f.eventually("the pod is evicted", func() bool { return f.evicted(p) })
	f.awaitCondition(v1beta1.ConditionNodeFound, metav1.ConditionTrue, "NodeFound")
	if n := f.ambiguousNodes(); n != 0 {
		t.Errorf("%v nodes are ambiguous, want none", n)
	}
	f.removePod(p)
	f.eventually("the drain is acknowledged", f.acknowledged)
}

// k3s' own cloud controller gives a Node another provider ID, under a name of its own: the Node
// is found by its address, and not taken for missing.
func TestNodeWithAnotherIDAndName(t *testing.T) {
	f := newFixture(t, nil)
	f.addMachine(nil)
	f.node = f.addNodeOf("k3s-"+f.id, "k3s://k3s-"+f.id)
	f.setStatus(func(s *corev1.NodeStatus) {
		ip := f.shards.Set.Instance(shard, f.id).GetIps()[0]
		s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
	})
	p := f.addPod("p")
	f.drain(long)
	want := f.shards.Set.Instance(shard, f.id).GetNodeProviderId()
	f.awaitEvents("NodeAmbiguous", []string{f.node.Name, "k3s://k3s-" + f.id, "--provider-id=" + want}, "Machine", "NstanceMachine", "Node")
	f.awaitCondition(v1beta1.ConditionNodeFound, metav1.ConditionFalse, "NodeAmbiguous")
	if f.cordoned() || f.evicted(p) || f.acknowledged() {
		t.Fatal("a node that says it is another machine's was drained, or counts as missing")
	}
	f.removePod(p)
}

// A Node of another name without a provider ID is not drained because it has an address of the
// instance: another network may use the same one. With the provider ID it is. Its name is
// stored, so that it is known even if its addresses change.
func TestNodeFoundByAddress(t *testing.T) {
	f := newFixture(t, nil)
	f.addMachine(nil)
	f.node = f.addNodeOf("renamed-"+f.id, "")
	f.setStatus(func(s *corev1.NodeStatus) {
		ip := f.shards.Set.Instance(shard, f.id).GetIps()[0]
		s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
	})
	p := f.addPod("p")
	f.addBudget("p", 0)
	f.drain(long)
	id := f.shards.Set.Instance(shard, f.id).GetNodeProviderId()
	f.awaitEvents("NodeAmbiguous", []string{f.node.Name, "kubectl patch node", "delete none", id}, "Machine", "NstanceMachine", "Node")
	f.awaitCondition(v1beta1.ConditionNodeFound, metav1.ConditionFalse, "NodeAmbiguous")
	if f.cordoned() || f.evicted(p) || f.acknowledged() {
		t.Fatal("a node that only has an address of the instance was drained, or counts as missing")
	}
	was := f.node.DeepCopy()
	f.node.Spec.ProviderID = id
	f.must(f.plane.Client.Patch(t.Context(), f.node, client.MergeFrom(was)))
	f.eventually("the node is cordoned", f.cordoned)
	f.awaitCondition(v1beta1.ConditionNodeFound, metav1.ConditionTrue, "NodeFound")
	var m v1beta1.NstanceMachine
	f.must(f.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(f.machine), &m))
	if m.Status.NodeName != f.node.Name {
		t.Errorf("the stored name is %q, want %q", m.Status.NodeName, f.node.Name)
	}
	f.removePod(p)
}

// A Node that was found once, and is created anew under its name by a kubelet that sets another
// provider ID, does not count as missing.
func TestNodeIsRemembered(t *testing.T) {
	f := newFixture(t, nil)
	f.addMachine(nil)
	name := "renamed-" + f.id
	f.node = f.addNodeOf(name, f.shards.Set.Instance(shard, f.id).GetNodeProviderId())
	p := f.addPod("p")
	f.addBudget("p", 0)
	f.drain(long)
	f.eventually("the node is cordoned", f.cordoned)
	f.awaitCondition(v1beta1.ConditionNodeFound, metav1.ConditionTrue, "NodeFound")
	f.must(f.plane.Client.Delete(t.Context(), f.node))
	f.node = f.addNodeOf(name, "k3s://"+name)
	f.awaitEvents("NodeAmbiguous", []string{name}, "Machine", "NstanceMachine", "Node")
	if f.acknowledged() {
		t.Error("a node that was found once counts as missing")
	}
	f.removePod(p)
}

// A Node of the instance's name with another provider ID is not drained, but does not count as
// missing either.
func TestNodeOfAnotherMachine(t *testing.T) {
	f := newFixture(t, nil)
	f.addMachine(nil)
	f.node = f.addNodeOf(f.id, "aws:///elsewhere/i-0")
	p := f.addPod("p")
	f.drain(long)
	f.awaitEvents("NodeAmbiguous", []string{f.id, "aws:///elsewhere/i-0", "--provider-id="}, "Machine", "NstanceMachine", "Node")
	if f.cordoned() || f.evicted(p) || f.acknowledged() {
		t.Fatal("the node of another machine was drained, or counts as missing")
	}
	f.removePod(p)
	f.must(f.plane.Client.Delete(t.Context(), f.node))
	f.eventually("the drain is acknowledged", f.acknowledged)
}

// The deadline also ends a drain of an ambiguous Node, and the event gives the reason.
func TestTimeoutOfAmbiguousDrain(t *testing.T) {
	f := newFixture(t, nil)
	f.addMachine(nil)
	f.node = f.addNodeOf(f.id, "aws:///elsewhere/i-0")
	f.drain(long)
	f.awaitEvents("NodeAmbiguous", nil, "Machine", "NstanceMachine")
	f.drain(soon)
	f.awaitEvents("DrainTimedOut", []string{"aws:///elsewhere/i-0"}, "Machine", "NstanceMachine")
	if f.cordoned() || f.acknowledged() {
		t.Error("the node of another machine was drained, or counts as missing")
	}
}

// A recreated Node is drained like the previous one.
func TestRecreatedNode(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	p := f.addPod("p")
	f.addBudget("p", 0)
	f.drain(long)
	f.eventually("the node is cordoned", f.cordoned)
	f.must(f.plane.Client.Delete(t.Context(), f.node))
	f.addNode()
	f.eventually("the new node is cordoned", f.cordoned)
	if f.acknowledged() {
		t.Error("acknowledged while a pod is on the node")
	}
	f.removePod(p)
	f.eventually("the drain is acknowledged", f.acknowledged)
}
