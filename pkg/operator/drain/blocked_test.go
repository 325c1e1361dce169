package drain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// later puts the operator's clock ahead.
func (f *fixture) later(by time.Duration) { f.ahead.Add(int64(by)) }

// A drain that pods hold up is reported after half a minute, with the pods and their budgets,
// and again when that has changed, but not while it stays the same.
func TestBlockedDrainIsReported(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(nil)
	one, two, going := f.addPod("one"), f.addPod("two"), f.addPod("going", func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = new(int64(600))
	})
	first, second := f.addBudget("one", 0), f.addBudget("two", 0)
	f.drain(time.Hour)
	f.eventually("the other pod is evicted", func() bool { return f.evicted(going) })
	var m v1beta1.NstanceMachine
	f.must(f.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(f.machine), &m))
	if meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrainBlocked) != nil || len(f.events("DrainBlocked")) > 0 {
		t.Error("a drain that has just begun is reported")
	}

	f.later(31 * time.Second)
	parts := []string{f.ns + "/one", first.Name, f.ns + "/two", second.Name, "will be removed"}
	f.awaitEvents("DrainBlocked", parts, "Machine", "NstanceMachine", "Node")
	said := f.awaitCondition(v1beta1.ConditionDrainBlocked, metav1.ConditionTrue, "DrainBlocked")
	for _, p := range parts {
		if !strings.Contains(said, p) {
			t.Errorf("the condition says %q, want %q in it", said, p)
		}
	}
	if strings.Contains(said, "/going") {
		t.Errorf("the condition says %q: a pod in its grace period is not in the way", said)
	}

	f.later(time.Minute)
	f.drainAnotherBeside()
	f.awaitEvents("DrainBlocked", parts, "Machine", "NstanceMachine", "Node") // still one each

	f.removePod(two)
	f.later(time.Minute)
	f.eventually("the change is reported", func() bool {
		all := f.events("DrainBlocked")["NstanceMachine"]
		return len(all) == 2 && slices.ContainsFunc(all, func(note string) bool { return !strings.Contains(note, "/two") })
	})
	f.allow(first, 1)
	f.eventually("the pod is evicted", func() bool { return f.evicted(one) })
	f.awaitCondition(v1beta1.ConditionDrainBlocked, metav1.ConditionFalse, "NothingInTheWay")
	f.removePod(one)
	f.removePod(going)
	f.eventually("the drain is acknowledged", f.acknowledged)
}

// drainAnotherBeside lets a whole drain of another instance pass, and returns to the present
// one.
func (f *fixture) drainAnotherBeside() {
	f.t.Helper()
	id, node := f.id, f.node
	f.drainAnother()
	f.id, f.node = id, node
}

const endHook = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/copy"

// The hooks of a pool's Machine hold its drain and its end although its shard began the
// removal, and the drain's end bounds them.
func TestHooksOfPoolMachine(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(map[string]string{hook: "one", endHook: "two"})
	f.patchMachine(func(m *clusterv1.Machine) { m.Labels = map[string]string{clusterv1.MachinePoolNameLabel: "web"} })
	f.plane.Cached(t, f.cached, f.machine)
	p := f.addPod("p")
	f.drain(long)
	f.awaitEvents("DrainHeld", []string{hook}, "Machine", "NstanceMachine")
	if f.cordoned() || f.evicted(p) {
		t.Fatal("the hook did not hold the drain")
	}
	f.patchMachine(func(m *clusterv1.Machine) { delete(m.Annotations, hook) })
	f.eventually("the pod is evicted", func() bool { return f.evicted(p) })
	f.removePod(p)
	f.eventually("the other hook is reported", func() bool {
		return slices.ContainsFunc(f.events("DrainHeld")["NstanceMachine"], func(note string) bool { return strings.Contains(note, endHook) })
	})
	if f.acknowledged() {
		t.Fatal("the hook did not hold the end")
	}
	f.patchMachine(func(m *clusterv1.Machine) { m.Annotations = nil })
	f.eventually("the drain is acknowledged", f.acknowledged)
}

// A hook that is never removed holds the drain until its end; also on a Machine that is so new that
// Cluster API has not made it the owner of its NstanceMachine yet.
func TestHookIsNeverRemoved(t *testing.T) {
	f := newFixture(t, nil)
	f.unowned = true
	f.addNode()
	f.addMachine(map[string]string{endHook: "two"})
	f.patchMachine(func(m *clusterv1.Machine) { m.Labels = map[string]string{clusterv1.MachinePoolNameLabel: "web"} })
	f.plane.Cached(t, f.cached, f.machine)
	f.drain(long)
	f.awaitEvents("DrainHeld", []string{endHook}, "Machine", "NstanceMachine")
	f.drain(soon)
	f.awaitEvents("DrainTimedOut", []string{endHook}, "Machine", "NstanceMachine")
	if f.acknowledged() {
		t.Error("acknowledged while a hook holds it")
	}
}
