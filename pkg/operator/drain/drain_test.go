package drain_test

import (
	"errors"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func TestNodeIsEmptied(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	plain := f.addPod("plain")
	scratch := f.addPod("scratch", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	skipped := f.addPod("skipped", func(p *corev1.Pod) { p.Labels[clusterv1.PodDrainLabel] = "skip" })
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "agents"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	set.Spec.Template.Labels = map[string]string{"app": "agent"}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
	f.create(set)
	agent := f.addPod("agent", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	})

	f.drain(long)
	f.eventually("the pods are evicted", func() bool { return f.evicted(plain) && f.evicted(scratch) })
	if !f.cordoned() {
		t.Error("pods were evicted from a node that is not cordoned")
	}
	f.removePod(plain)
	if f.acknowledged() {
		t.Error("acknowledged while a pod still terminates")
	}
	f.removePod(scratch)
	f.eventually("the drain is acknowledged", f.acknowledged)
	if f.evicted(skipped) || f.evicted(agent) {
		t.Error("a skipped pod or one of a DaemonSet was evicted")
	}
	if n := len(f.shard.Calls("AcknowledgeDrained")); n != 1 {
		t.Errorf("acknowledged %d times, want once", n)
	}
}

func TestBudget(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	held, free := f.addPod("held"), f.addPod("free")
	budget := f.addBudget("held", 0)
	f.drain(long)
	f.eventually("the other pod is evicted", func() bool { return f.evicted(free) })
	if f.evicted(held) || f.acknowledged() {
		t.Fatal("the budget was not respected")
	}
	f.allow(budget, 1)
	f.eventually("the pod is evicted", func() bool { return f.evicted(held) })
	f.removePod(held)
	f.removePod(free)
	f.eventually("the drain is acknowledged", f.acknowledged)
}

func TestBudgetNeverAllows(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(nil)
	held := f.addPod("held")
	f.addBudget("held", 0)
	f.drain(long)
	f.eventually("the node is cordoned", f.cordoned)
	f.drain(soon)
	f.awaitEvents("DrainTimedOut", []string{f.ns + "/held", "held-budget"}, "Machine", "NstanceMachine", "Node")
	if f.evicted(held) || f.acknowledged() {
		t.Error("the budget was not respected")
	}
}

// The timeout is reported even if Machines can't be read at first.
func TestTimeoutIsReportedAfterFailedReads(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(nil)
	held := f.addPod("held")
	f.addBudget("held", 0)
	f.drain(long)
	f.eventually("the node is cordoned", f.cordoned)
	var after atomic.Int32
	fail := func() error {
		switch {
		case f.shards.Set.Instance(shard, f.id).GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
		case after.Add(1) > 1:
			return nil
		}
		return errors.New("simulated failure")
	}
	f.client.fail.Store(&fail)
	f.drain(soon)
	f.awaitEvents("DrainTimedOut", []string{f.ns + "/held"}, "Machine", "NstanceMachine", "Node")
	if f.evicted(held) || after.Load() < 2 {
		t.Errorf("the pod was evicted, or only %d reads after the deadline", after.Load())
	}
}

func TestNoNode(t *testing.T) {
	f := newFixture(t, nil)
	f.drain(long)
	f.eventually("the drain is acknowledged", f.acknowledged)
}

// A Node without a provider ID is found by its name.
func TestNodeWithoutProviderID(t *testing.T) {
	f := newFixture(t, nil)
	f.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.shards.Set.Instance(shard, f.id).GetHostname()}}
	f.create(f.node)
	p := f.addPod("p")
	f.drain(long)
	f.eventually("the pod is evicted", func() bool { return f.evicted(p) })
	f.removePod(p)
	f.eventually("the drain is acknowledged", f.acknowledged)
}

// A refused acknowledgement is retried.
func TestAcknowledgementFails(t *testing.T) {
	f := newFixture(t, nil)
	f.shard.Fail("AcknowledgeDrained", errors.New("simulated failure"), 3)
	f.drain(long)
	f.eventually("the drain is acknowledged", f.acknowledged)
}

const hook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/backup"

// A hook's owner acts only when the Machine is being deleted. If only the instance is removed,
// the hook must not delay the drain, because the pods would be killed with the machine.
func TestPreDrainHookOfRemainingMachine(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(map[string]string{hook: "another"})
	p := f.addPod("p")
	f.drain(long)
	f.eventually("the pod is evicted", func() bool { return f.evicted(p) })
	f.removePod(p)
	f.eventually("the drain is acknowledged", f.acknowledged)
}

func TestPreDrainHook(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(map[string]string{hook: "another"})
	f.deleteMachine()
	p := f.addPod("p")
	f.drain(long)
	f.awaitEvents("DrainHeld", []string{hook}, "Machine", "NstanceMachine")
	if f.cordoned() || f.evicted(p) || f.acknowledged() {
		t.Fatal("the hook did not delay the drain")
	}
	f.patchMachine(func(m *clusterv1.Machine) { m.Annotations = nil })
	f.eventually("the pod is evicted", func() bool { return f.evicted(p) })
	f.removePod(p)
	f.eventually("the drain is acknowledged", f.acknowledged)
}

func TestExcluded(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(map[string]string{clusterv1.ExcludeNodeDrainingAnnotation: ""})
	p := f.addPod("p")
	f.drain(long)
	f.eventually("the drain is acknowledged", f.acknowledged)
	if f.cordoned() || f.evicted(p) {
		t.Error("a node that is excluded from draining was drained")
	}
}

// Cluster API's MachineDrainRules: pods with order 1 are evicted after the others, and some are
// only waited for.
func TestMachineDrainRules(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(nil)
	last := &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "last"}}
	last.Spec.Drain = clusterv1.MachineDrainRuleDrainConfig{Behavior: clusterv1.MachineDrainRuleDrainBehaviorDrain, Order: new(int32(1))}
	last.Spec.Pods = []clusterv1.MachineDrainRulePodSelector{{
		Selector:          &metav1.LabelSelector{MatchLabels: map[string]string{"app": "base"}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.ns}},
	}}
	f.create(last)
	f.plane.Cached(t, f.cached, last)
	base := f.addPod("base")
	job := f.addPod("job", func(p *corev1.Pod) { p.Labels[clusterv1.PodDrainLabel] = "wait-completed" })
	web := f.addPod("web")

	f.drain(long)
	f.eventually("the first pod is evicted", func() bool { return f.evicted(web) })
	f.removePod(web)
	if f.evicted(base) || f.evicted(job) {
		t.Fatal("a pod was evicted out of order")
	}
	job.Status.Phase = corev1.PodSucceeded
	f.must(f.plane.Client.Status().Update(t.Context(), job))
	f.eventually("the last pod is evicted", func() bool { return f.evicted(base) })
	f.removePod(base)
	f.eventually("the drain is acknowledged", f.acknowledged)
}

// Without a connection to the workload cluster, an unknown node does not count as missing.
func TestUnknownNodeIsNotMissing(t *testing.T) {
	f := newFixture(t, func(mgr ctrl.Manager, f *fixture) (*workload.Cluster, error) {
		return workload.External(mgr, client.ObjectKey{Namespace: f.ns, Name: kubeconfig})
	})
	f.addMachine(nil)
	f.drain(long)
	f.awaitEvents("DrainHeld", nil, "Machine", "NstanceMachine")
	f.drain(soon)
	f.awaitEvents("DrainTimedOut", []string{kubeconfig}, "Machine", "NstanceMachine")
	if f.acknowledged() {
		t.Error("acknowledged although the node is unknown")
	}
}

// If the machine dies during the drain, its pods are not evicted, even if the budget allows it
// later, and no event reports a timeout.
func TestMachineDies(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(nil)
	held := f.addPod("held")
	budget := f.addBudget("held", 0)
	first := f.id
	f.drain(long)
	f.eventually("the node is cordoned", f.cordoned)
	f.shard.Kill(first)
	f.eventually("the operator's cache has its death", func() bool {
		return f.shards.Set.Instance(shard, first).GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
	})
	f.drainAnother() // by then a reconcile of the first node has ended
	f.allow(budget, 1)
	f.drainAnother() // longer than another reconcile of the first node would take
	if f.evicted(held) {
		t.Error("a pod of a machine that has died was evicted")
	}
	if events := f.events("DrainTimedOut"); len(events) > 0 {
		t.Errorf("events: %v, want none", events)
	}
}
