package drain_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

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
	r := newRoom(t, nil)
	r.addNode()
	plain := r.addPod("plain")
	scratch := r.addPod("scratch", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	skipped := r.addPod("skipped", func(p *corev1.Pod) { p.Labels[clusterv1.PodDrainLabel] = "skip" })
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "agents"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	set.Spec.Template.Labels = map[string]string{"app": "agent"}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
	r.create(set)
	agent := r.addPod("agent", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	})

	r.drain(long)
	r.eventually("the pods are evicted", func() bool { return r.asked(plain) && r.asked(scratch) })
	if !r.cordoned() {
		t.Error("pods were evicted from a node that takes new ones")
	}
	r.end(plain)
	if r.acknowledged() {
		t.Error("acknowledged with a pod that still terminates")
	}
	r.end(scratch)
	r.eventually("the drain is acknowledged", r.acknowledged)
	if r.asked(skipped) || r.asked(agent) {
		t.Error("a pod was evicted that is to be left alone")
	}
	if n := len(r.shard.Calls("AcknowledgeDrained")); n != 1 {
		t.Errorf("acknowledged %d times, want once", n)
	}
}

func TestBudget(t *testing.T) {
	r := newRoom(t, nil)
	r.addNode()
	held, free := r.addPod("held"), r.addPod("free")
	budget := r.addBudget("held", 0)
	r.drain(long)
	r.eventually("the other pod is evicted", func() bool { return r.asked(free) })
	if r.asked(held) || r.acknowledged() {
		t.Fatal("the budget was not respected")
	}
	r.allow(budget, 1)
	r.eventually("the pod is evicted", func() bool { return r.asked(held) })
	r.end(held)
	r.end(free)
	r.eventually("the drain is acknowledged", r.acknowledged)
}

func TestBudgetNeverAllows(t *testing.T) {
	r := newRoom(t, nil)
	r.addNode()
	r.addMachine(nil)
	held := r.addPod("held")
	r.addBudget("held", 0)
	r.drain(3 * time.Second)
	r.tells("DrainTimedOut", []string{r.ns + "/held", "held-budget"}, "Machine", "NstanceMachine", "Node")
	if r.asked(held) || r.acknowledged() {
		t.Error("the budget was not respected")
	}
}

// That time ran out is told also if Machines can't be read at just that time.
func TestTheEndIsToldLater(t *testing.T) {
	r := newRoom(t, nil)
	r.addNode()
	r.addMachine(nil)
	held := r.addPod("held")
	r.addBudget("held", 0)
	r.drain(5 * time.Second)
	r.eventually("the node is cordoned", r.cordoned)
	var after atomic.Int32
	fail := func() error {
		switch {
		case r.world.Set.Instance(shard, r.id).GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
		case after.Add(1) > 1:
			return nil
		}
		return errors.New("a bad day")
	}
	r.client.fail.Store(&fail)
	r.tells("DrainTimedOut", []string{r.ns + "/held"}, "Machine", "NstanceMachine", "Node")
	if r.asked(held) || after.Load() < 2 {
		t.Errorf("the pod was evicted, or %d looks after the end", after.Load())
	}
}

func TestNoNode(t *testing.T) {
	r := newRoom(t, nil)
	r.drain(long)
	r.eventually("the drain is acknowledged", r.acknowledged)
}

// A node may not have its provider id yet: then it is found by its name.
func TestNodeWithoutProviderID(t *testing.T) {
	r := newRoom(t, nil)
	r.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.world.Set.Instance(shard, r.id).GetHostname()}}
	r.create(r.node)
	p := r.addPod("p")
	r.drain(long)
	r.eventually("the pod is evicted", func() bool { return r.asked(p) })
	r.end(p)
	r.eventually("the drain is acknowledged", r.acknowledged)
}

// A shard that does not take the acknowledgement is told again.
func TestAcknowledgementFails(t *testing.T) {
	r := newRoom(t, nil)
	r.shard.Fail("AcknowledgeDrained", errors.New("a bad day"), 3)
	r.drain(long)
	r.eventually("the drain is acknowledged", r.acknowledged)
}

const hook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/backup"

// Whoever has a hook acts when the Machine is being deleted. When only its instance
// goes, nobody would take the hook off, and the pods would die with the machine.
func TestPreDrainHookOfAMachineThatStays(t *testing.T) {
	r := newRoom(t, nil)
	r.addNode()
	r.addMachine(map[string]string{hook: "somebody"})
	p := r.addPod("p")
	r.drain(long)
	r.eventually("the pod is evicted", func() bool { return r.asked(p) })
	r.end(p)
	r.eventually("the drain is acknowledged", r.acknowledged)
}

func TestPreDrainHook(t *testing.T) {
	r := newRoom(t, nil)
	r.addNode()
	r.addMachine(map[string]string{hook: "somebody"})
	r.deleteMachine()
	p := r.addPod("p")
	r.drain(long)
	r.tells("DrainHeld", []string{hook}, "Machine", "NstanceMachine")
	if r.cordoned() || r.asked(p) || r.acknowledged() {
		t.Fatal("the hook did not hold the drain back")
	}
	r.patchMachine(func(m *clusterv1.Machine) { m.Annotations = nil })
	r.eventually("the pod is evicted", func() bool { return r.asked(p) })
	r.end(p)
	r.eventually("the drain is acknowledged", r.acknowledged)
}

func TestExcluded(t *testing.T) {
	r := newRoom(t, nil)
	r.addNode()
	r.addMachine(map[string]string{clusterv1.ExcludeNodeDrainingAnnotation: ""})
	p := r.addPod("p")
	r.drain(long)
	r.eventually("the drain is acknowledged", r.acknowledged)
	if r.cordoned() || r.asked(p) {
		t.Error("a node that is excluded from draining was drained")
	}
}

// Cluster API's rules: those with order 1 go when the others have gone, and some are
// waited for.
func TestMachineDrainRules(t *testing.T) {
	r := newRoom(t, nil)
	r.addNode()
	r.addMachine(nil)
	last := &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "last"}}
	last.Spec.Drain = clusterv1.MachineDrainRuleDrainConfig{Behavior: clusterv1.MachineDrainRuleDrainBehaviorDrain, Order: new(int32(1))}
	last.Spec.Pods = []clusterv1.MachineDrainRulePodSelector{{
		Selector:          &metav1.LabelSelector{MatchLabels: map[string]string{"app": "base"}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: r.ns}},
	}}
	r.create(last)
	base := r.addPod("base")
	job := r.addPod("job", func(p *corev1.Pod) { p.Labels[clusterv1.PodDrainLabel] = "wait-completed" })
	web := r.addPod("web")

	r.drain(long)
	r.eventually("the first pod is evicted", func() bool { return r.asked(web) })
	r.end(web)
	if r.asked(base) || r.asked(job) {
		t.Fatal("a pod went before its turn")
	}
	job.Status.Phase = corev1.PodSucceeded
	r.must(r.plane.Client.Status().Update(t.Context(), job))
	r.eventually("the last pod is evicted", func() bool { return r.asked(base) })
	r.end(base)
	r.eventually("the drain is acknowledged", r.acknowledged)
}

// While there is no way to the workload cluster, an unknown node is not a missing one.
func TestUnknownIsNotMissing(t *testing.T) {
	r := newRoom(t, func(mgr ctrl.Manager, r *room) (*workload.Cluster, error) {
		return workload.External(mgr, client.ObjectKey{Namespace: r.ns, Name: "c-kubeconfig"})
	})
	r.addMachine(nil)
	r.drain(3 * time.Second)
	r.tells("DrainTimedOut", []string{"c-kubeconfig"}, "Machine", "NstanceMachine")
	if r.acknowledged() {
		t.Error("acknowledged without knowing what is on the node")
	}
}

// When the machine dies in the middle, its pods are left alone, also when the budget
// would allow it then, and nobody is told that time ran out.
func TestMachineDies(t *testing.T) {
	r := newRoom(t, nil)
	r.addNode()
	r.addMachine(nil)
	held := r.addPod("held")
	budget := r.addBudget("held", 0)
	first := r.id
	r.drain(long)
	r.eventually("the node is cordoned", r.cordoned)
	r.shard.Kill(first)
	r.eventually("the operator knows that it died", func() bool {
		return r.world.Set.Instance(shard, first).GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
	})
	r.another() // a look at the first node that had begun before has ended by then
	r.allow(budget, 1)
	r.another() // this takes longer than one more look at the first node would
	if r.asked(held) {
		t.Error("a pod of a machine that has died was evicted")
	}
	if told := r.told("DrainTimedOut"); len(told) > 0 {
		t.Errorf("events: %v, want none", told)
	}
}
