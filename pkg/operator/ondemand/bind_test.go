package ondemand_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// toBind has the operator's gate, and everything that a patch could lose.
func toBind(p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1beta1.GateMachine}}
	p.Spec.NodeSelector = map[string]string{"own": "1"}
	p.Spec.Tolerations = []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}}
}

// bound checks that a pod selects its own node, which no other pod tolerates.
func (f *fixture) bound(name, node string) error {
	f.Helper()
	var p corev1.Pod
	var n corev1.Node
	for key, o := range map[client.ObjectKey]client.Object{{Namespace: f.pods, Name: name}: &p, {Name: node}: &n} {
		if err := f.api.Get(f.Context(), key, o); err != nil {
			f.Fatal(err)
		}
	}
	taint := corev1.Taint{Key: v1beta1.LabelNodePodUID, Value: string(p.UID), Effect: corev1.TaintEffectNoSchedule}
	tolerated := slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == taint.Key && t.Value == taint.Value
	})
	reserved := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value })
	switch {
	case len(p.Spec.SchedulingGates) > 0:
		return fmt.Errorf("it has gates %v", p.Spec.SchedulingGates)
	case p.Spec.NodeSelector[v1beta1.LabelNodePodUID] != string(p.UID) || p.Spec.NodeSelector["own"] != "1":
		return fmt.Errorf("it selects %v", p.Spec.NodeSelector)
	case !tolerated || p.Spec.Tolerations[0].Key != "own":
		return fmt.Errorf("it tolerates %v", p.Spec.Tolerations)
	case n.Labels[v1beta1.LabelNodePodUID] != string(p.UID) || !reserved:
		return fmt.Errorf("the node has %v, %v", n.Labels, n.Spec.Taints)
	}
	return nil
}

// A pod with the operator's gate is bound to its machine once that has a Node, whatever write
// the operator crashes at.
func TestGatedPodIsBoundToItsMachine(t *testing.T) {
	for at := range 2 {
		for late := range 2 {
			t.Run(fmt.Sprintf("crash at write %d, after it: %d", at, late), func(t *testing.T) {
				f := newFixture(t)
				pod := f.pod("job", toBind)
				f.settle("job")
				f.count("the gate is no reason to wait", 1)
				steps := 0
				node := f.boot(pod)
				f.restart(func() (before, after error) {
					if steps++; steps-1 != at {
						return nil, nil
					}
					if late == 1 {
						return nil, errCrash
					}
					return errCrash, nil
				})
				if err := f.reconcile("job"); err == nil {
					t.Fatal("the reconcile was not interrupted")
				}
				f.restart(nil)
				f.settle("job")
				if err := f.bound("job", node); err != nil {
					t.Error(err)
				}
				f.writes = 0
				f.settle("job")
				f.schedule(pod, node)
				f.settle("job")
				if f.writes > 0 {
					t.Errorf("%d writes without a change", f.writes)
				}
			})
		}
	}
}

// A bound pod whose machine is lost before it is scheduled gets another one, whose Node is
// reserved for it, too.
func TestBoundPodGetsAnotherMachine(t *testing.T) {
	f := newFixture(t)
	pod := f.pod("job", toBind)
	f.settle("job")
	node := f.boot(pod)
	f.settle("job")
	if err := f.bound("job", node); err != nil {
		t.Fatal(err)
	}
	machines, infrastructures := f.objects()
	f.setFinalizers(&infrastructures[0]) // its controller's work is done
	for _, gone := range []client.Object{
		&machines[0], &infrastructures[0], &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
	} {
		f.delete(gone)
	}
	f.late += time.Minute
	f.settle("job")
	f.boot(pod)
	f.settle("job")
	if err := f.bound("job", node); err != nil {
		t.Error(err)
	}
}

// Gates of other owners hold a pod, also beside the operator's own.
func TestGateOfAnotherOwnerHolds(t *testing.T) {
	f := newFixture(t)
	pod := f.pod("job", func(p *corev1.Pod) {
		toBind(p)
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "example.com/queue"})
	})
	f.settle("job")
	f.count("held", 0)
	if e := f.event(); !strings.Contains(e, "held by spec.schedulingGates example.com/queue") {
		t.Errorf("event %q", e)
	}
	pod.Spec.SchedulingGates = pod.Spec.SchedulingGates[:1]
	if err := f.api.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.settle("job")
	node := f.boot(pod)
	f.settle("job")
	if err := f.bound("job", node); err != nil {
		t.Error(err)
	}
}

// The gate stays as long as it is not certain which Node is the machine's.
func TestGateStays(t *testing.T) {
	f := newFixture(t)
	pod := f.pod("job", toBind)
	f.settle("job")
	node := f.boot(pod)
	f.node(f.ns+"-stranger", "process:///"+node)
	f.settle("job")
	if err := f.bound("job", node); err == nil || !strings.Contains(err.Error(), "it has gates") {
		t.Errorf("with two Nodes of one provider ID: %v", err)
	}
	if e := f.lastEvent(); !strings.Contains(e, "node is ambiguous") || !strings.Contains(e, f.ns+"-stranger") {
		t.Errorf("event %q", e)
	}
	f.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.ns + "-stranger"}})
	f.settle("job")
	if err := f.bound("job", node); err != nil {
		t.Errorf("once the other Node is gone: %v", err)
	}
}

// A Node that claims the machine's provider ID beside the Node of the machine's name is not
// trusted with its pod.
func TestGateStaysWithAStranger(t *testing.T) {
	f := newFixture(t)
	pod := f.pod("job", toBind)
	f.settle("job")
	stranger := f.boot(pod)
	_, infrastructures := f.objects()
	own := string(infrastructures[0].Spec.InstanceID)
	f.node(own, "")
	f.settle("job")
	if err := f.bound("job", stranger); err == nil || !strings.Contains(err.Error(), "it has gates") {
		t.Errorf("bound to a stranger's Node: %v", err)
	}
	if e := f.lastEvent(); !strings.Contains(e, own) || !strings.Contains(e, stranger) {
		t.Errorf("event %q", e)
	}
}

// A Node that has the machine's name, but not its provider ID, is told of.
func TestGateStaysWithoutProviderID(t *testing.T) {
	f := newFixture(t)
	pod := f.pod("job", toBind)
	f.settle("job")
	f.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.boot(pod)}})
	_, infrastructures := f.objects()
	own := string(infrastructures[0].Spec.InstanceID)
	f.node(own, "")
	f.settle("job")
	if err := f.bound("job", own); err == nil || !strings.Contains(err.Error(), "it has gates") {
		t.Errorf("bound to a Node without the provider ID: %v", err)
	}
	if e := f.lastEvent(); !strings.Contains(e, "has no providerID: start its kubelet with --provider-id=") {
		t.Errorf("event %q", e)
	}
}

// The gate stays if the pod selects another pod's Node.
func TestGateStaysWithAnotherSelector(t *testing.T) {
	f := newFixture(t)
	copied := f.pod("copied", func(p *corev1.Pod) {
		toBind(p)
		p.Spec.NodeSelector[v1beta1.LabelNodePodUID] = "another"
	})
	f.settle("copied")
	node := f.boot(copied)
	f.settle("copied")
	if err := f.bound("copied", node); err == nil || !strings.Contains(err.Error(), "it has gates") {
		t.Errorf("with another pod's selector: %v", err)
	}
	if e := f.lastEvent(); !strings.Contains(e, "want none: the operator sets it") {
		t.Errorf("event %q", e)
	}
}
