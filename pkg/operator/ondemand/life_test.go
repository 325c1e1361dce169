package ondemand_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/ondemand"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// boot makes the machine of a pod's claim one with an instance, a provider ID and a Node, and
// returns the Node's name, which is unique in the API server.
func (f *fixture) boot(pod *corev1.Pod) string {
	f.Helper()
	m := f.machineOf(pod.UID)
	if m == nil {
		f.Fatalf("pod %s has no Machine", pod.Name)
	}
	node := f.ns + "-" + pod.Name
	var infra v1beta1.NstanceMachine
	if err := f.api.Get(f.Context(), client.ObjectKeyFromObject(m), &infra); err != nil {
		f.Fatal(err)
	}
	f.instances++
	infra.Spec.InstanceID = v1beta1.InstanceID(fmt.Sprintf("knd01m7y23z9me5h9rh8r50%06d", f.instances))
	infra.Spec.ProviderID = "process:///" + node
	if err := f.api.Update(f.Context(), &infra); err != nil {
		f.Fatal(err)
	}
	f.node(node, "process:///"+node)
	return node
}

func (f *fixture) node(name, providerID string) {
	f.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	f.create(n)
	f.Cleanup(func() { _ = f.api.Delete(context.Background(), n) })
}

// machineOf returns the Machine that is a pod's; nil if it has none.
func (f *fixture) machineOf(uid types.UID) *clusterv1.Machine {
	f.Helper()
	machines, _ := f.objects()
	for i := range machines {
		if machines[i].Labels[ondemand.LabelPodUID] == string(uid) {
			return &machines[i]
		}
	}
	return nil
}

// schedule binds a pod to a node, as the scheduler does, and has it run there.
func (f *fixture) schedule(p *corev1.Pod, node string) {
	f.Helper()
	to := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	to.Namespace, to.Name = p.Namespace, p.Name
	if err := f.api.SubResource("binding").Create(f.Context(), p, to); err != nil {
		f.Fatal(err)
	}
	f.phase(p, corev1.PodRunning)
}

func (f *fixture) phase(p *corev1.Pod, phase corev1.PodPhase) {
	f.Helper()
	if err := f.api.Get(f.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		f.Fatal(err)
	}
	p.Status.Phase = phase
	if err := f.api.Status().Update(f.Context(), p); err != nil {
		f.Fatal(err)
	}
	f.late += time.Minute // a changed pod is not read again at once
}

// settle reconciles pods until nothing is left to do.
func (f *fixture) settle(pods ...string) {
	f.Helper()
	for range 4 {
		for _, name := range pods {
			f.mustReconcile(name)
		}
	}
}

// wantNodes checks which machines exist, by their nodes, each with the pod that has it.
func (f *fixture) wantNodes(what string, want map[string]*corev1.Pod) {
	f.Helper()
	machines, infrastructures := f.objects()
	owners := map[string]string{}
	for _, m := range machines {
		owners[m.Name] = m.Labels[ondemand.LabelPodUID] + " " + m.Annotations[ondemand.AnnotationPod]
	}
	if len(machines) != len(want) {
		f.Errorf("%s: there are Machines %v, want %d", what, owners, len(want))
	}
	for _, i := range infrastructures {
		owner := i.Labels[ondemand.LabelPodUID] + " " + i.Annotations[ondemand.AnnotationPod]
		pod := want[strings.TrimPrefix(i.Spec.ProviderID, "process:///")]
		switch {
		case owners[i.Name] == "": // it is deleted by the garbage collector
		case pod == nil || owners[i.Name] != owner || owner != string(pod.UID)+" "+pod.Namespace+"/"+pod.Name:
			f.Errorf("%s: the Machine of %s is of pod %s, its NstanceMachine of %s", what, i.Spec.ProviderID, owners[i.Name], owner)
		}
	}
}

// two creates two pods with a machine each, which both run on the first one.
func (f *fixture) two() (first, second *corev1.Pod, one, other string) {
	f.Helper()
	first, second = f.pod("first", nil), f.pod("second", nil)
	f.settle("first", "second")
	one, other = f.boot(first), f.boot(second)
	f.schedule(first, one)
	f.schedule(second, one)
	f.settle("first", "second")
	return first, second, one, other
}

// Two pods run on the first one's machine. When the first ends or is deleted, the idle
// machine goes, whatever write the operator crashes at, and the second pod has the other.
func TestMachineWithRunningPodStays(t *testing.T) {
	for at := range 4 {
		for late := range 2 {
			t.Run(fmt.Sprintf("crash at write %d, after it: %d", at, late), func(t *testing.T) {
				f := newFixture(t)
				first, second, one, other := f.two()
				f.wantNodes("both run", map[string]*corev1.Pod{one: first, other: second})
				steps := 0
				f.restart(func() (before, after error) {
					if steps++; steps-1 != at {
						return nil, nil
					}
					if late == 1 {
						return nil, errCrash
					}
					return errCrash, nil
				})
				if late == 0 {
					f.phase(first, corev1.PodSucceeded)
				} else {
					f.delete(first)
				}
				crashed := false
				for range 3 {
					for _, name := range []string{"first", "second"} {
						if !crashed {
							crashed = f.reconcile(name) != nil
						}
					}
				}
				if !crashed {
					t.Fatalf("not interrupted: only %d writes", steps)
				}
				f.restart(nil)
				f.settle("first", "second")
				f.wantNodes("the first has ended", map[string]*corev1.Pod{one: second})

				f.delete(second)
				f.settle("first", "second")
				f.wantNodes("the second is gone", nil)
			})
		}
	}
}

// A chain of pods, each on the machine of the previous one: the machine at its end goes.
func TestIdleMachineOfAChainGoes(t *testing.T) {
	f := newFixture(t)
	var pods []*corev1.Pod
	var nodes, names []string
	for n := range 4 {
		p := f.pod(fmt.Sprintf("p%d", n), nil)
		f.settle(p.Name)
		pods, names, nodes = append(pods, p), append(names, p.Name), append(nodes, f.boot(p))
	}
	for n := range 3 {
		f.schedule(pods[n+1], nodes[n])
	}
	// A pod that asked for nothing is on the second pod's machine, and does not hold it.
	f.schedule(f.pod("guest", func(p *corev1.Pod) { p.Annotations = nil }), nodes[1])
	f.delete(pods[0])
	f.settle(names...)
	f.wantNodes("the first pod is gone", map[string]*corev1.Pod{nodes[0]: pods[1], nodes[1]: pods[2], nodes[2]: pods[3]})
}

// A pod that was refused one, or is not served yet, gets the machine that it runs on when the
// other pod is gone, if the group allows its Namespace any.
func TestMachineIsAdopted(t *testing.T) {
	for name, c := range map[string]struct {
		policy *nstancev1.OnDemand
		pod    func(*corev1.Pod)
		gets   bool
	}{
		"no room":              {policy: anywhere(1), gets: true},
		"other Namespaces":     {policy: &nstancev1.OnDemand{Namespaces: []string{"other"}, Max: 5}},
		"no policy":            {},
		"another type":         {policy: anywhere(1), pod: annotated(v1beta1.AnnotationOnDemandInstanceType, "large")},
		"it asked for nothing": {policy: anywhere(1), pod: func(p *corev1.Pod) { p.Annotations = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			first := f.pod("first", nil)
			f.settle("first")
			f.shards.Shard("a").AllowPods("web", c.policy)
			shardstest.Eventually(t, "the Set has the policy", func() bool {
				return f.shards.Set.Group("a", "web").GetOnDemand().String() == c.policy.String()
			})
			second := f.pod("second", c.pod)
			f.settle("second")
			node := f.boot(first)
			f.schedule(first, node)
			f.schedule(second, node)
			f.delete(first)
			f.settle("first", "second")
			want := map[string]*corev1.Pod{}
			if c.gets {
				want[node] = second
			}
			f.wantNodes(name, want)
		})
	}
}

// An operator whose cache does not show the hand-over yet takes no machine.
func TestStaleCacheEvictsNothing(t *testing.T) {
	f := newFixture(t)
	first, second, one, _ := f.two()
	f.delete(first)
	before, infrastructures := f.objects()
	f.settle("first", "second")
	f.wantNodes("handed over", map[string]*corev1.Pod{one: second})
	f.rec.Client = staleLists{f.rec.Client, before, infrastructures}
	for range 3 {
		if err := f.reconcile("first"); err != nil {
			t.Fatal(err)
		}
	}
	f.wantNodes("with a stale cache", map[string]*corev1.Pod{one: second})
}

// staleLists is a client with a cache that has earlier objects.
type staleLists struct {
	client.Client

	machines        []clusterv1.Machine
	infrastructures []v1beta1.NstanceMachine
}

func (s staleLists) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list := list.(type) {
	case *clusterv1.MachineList:
		list.Items = s.machines
	case *v1beta1.NstanceMachineList:
		list.Items = s.infrastructures
	default:
		return s.Client.List(ctx, list, opts...)
	}
	return nil
}

// Cluster API's own drain of a pod's Machine, and its wait for volumes, are bounded.
func TestCoresDrainIsBounded(t *testing.T) {
	for timeout, want := range map[time.Duration]int32{90 * time.Second: 90, 0: 1} {
		f := newFixture(t)
		f.shards.Shard("a").SetTiming(func(t *shardstest.Timing) { t.Drain = timeout })
		f.shards.Shard("a").AllowPods("web", anywhere(5)) // so that the group is sent again
		shardstest.Eventually(t, "the Set has the group's drain timeout", func() bool {
			return f.shards.Set.Group("a", "web").GetDrainTimeout().AsDuration() == timeout
		})
		f.pod("job", nil)
		machines, _ := f.mustReconcile("job")
		d := machines[0].Spec.Deletion
		if d.NodeDrainTimeoutSeconds == nil || *d.NodeDrainTimeoutSeconds != want ||
			d.NodeVolumeDetachTimeoutSeconds == nil || *d.NodeVolumeDetachTimeoutSeconds != want {
			t.Errorf("drain timeout %v: spec.deletion %+v", timeout, d)
		}
	}
}
