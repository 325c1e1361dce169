package pool_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// longGrace does not pass before the test has named the machines, however busy the machine is.
const longGrace = time.Hour

const deleteMachine = `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":"now"}}}`

func (f *fixture) annotateForDeletion(id string) {
	f.t.Helper()
	f.patch(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: id}}, deleteMachine)
}

// awaitMachines waits until Cluster API has created a Machine for each instance.
func (f *fixture) awaitMachines(group string, want int) {
	f.t.Helper()
	f.eventually("all instances have Machines", func() error {
		var all clusterv1.MachineList
		f.must(f.api.List(f.t.Context(), &all, client.InNamespace(f.ns), client.MatchingLabels{clusterv1.MachinePoolNameLabel: group}))
		if len(all.Items) != want {
			return fmt.Errorf("%d of %d have one", len(all.Items), want)
		}
		return nil
	})
}

// newPoolOfSeven returns a pool with 4 instances on a and 3 on b, each with a Machine.
func newPoolOfSeven(t *testing.T, grace time.Duration) (f *fixture, a, b []string) {
	t.Helper()
	f = newFixture(t, "a", "b")
	f.grace = grace
	f.runOperator(f.shards)
	f.pool("web", 7, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 4, 3)
	f.awaitMachines("web", 7)
	return f, f.liveInstances("a", "web"), f.liveInstances("b", "web")
}

// wantOnlyRemoved waits until only these instances are gone, and checks that none was created.
func (f *fixture) wantOnlyRemoved(group string, before, gone []string) {
	f.t.Helper()
	want := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return slices.Contains(gone, id) })
	f.awaitMachines(group, len(want))
	now := slices.Sorted(slices.Values(slices.Concat(f.liveInstances("a", group), f.liveInstances("b", group))))
	if !slices.Equal(now, want) {
		f.t.Fatalf("instances %v, want %v", now, want)
	}
	if made := len(f.shards.Shard("a").Instances(group)) + len(f.shards.Shard("b").Instances(group)); made != len(before) {
		f.t.Fatalf("%d instances in all, want %d", made, len(before))
	}
}

// One machine is annotated and the replicas are lowered, in two writes: the annotated machine
// is removed, in either order, although it is on the smaller shard.
func TestAnnotatedMachineIsRemoved(t *testing.T) {
	for _, c := range []struct {
		name  string
		order func(annotate, lower func())
	}{
		{"annotated first", func(annotate, lower func()) { annotate(); lower() }},
		{"annotated 5 ms before", func(annotate, lower func()) { annotate(); time.Sleep(5 * time.Millisecond); lower() }},
		{"lowered first", func(annotate, lower func()) { lower(); annotate() }},
		{"lowered 5 ms before", func(annotate, lower func()) { lower(); time.Sleep(5 * time.Millisecond); annotate() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, a, b := newPoolOfSeven(t, longGrace)
			victim := b[1]
			c.order(func() { f.annotateForDeletion(victim) }, func() { f.scale("web", 6) })
			f.awaitSizes("web", []string{"a", "b"}, 4, 2)
			f.wantOnlyRemoved("web", slices.Sorted(slices.Values(slices.Concat(a, b))), []string{victim})
			f.awaitProviderIDs("web", f.providerIDs("web", "a", "b"))
		})
	}
}

// The Cluster Autoscaler removes several machines, one after another.
func TestSeveralAnnotatedMachinesAreRemoved(t *testing.T) {
	f, a, b := newPoolOfSeven(t, longGrace)
	gone := []string{b[0], b[2], a[3]}
	for i, id := range gone {
		f.annotateForDeletion(id)
		f.scale("web", int32(6-i))
	}
	f.awaitSizes("web", []string{"a", "b"}, 3, 1)
	f.wantOnlyRemoved("web", slices.Sorted(slices.Values(slices.Concat(a, b))), gone)
}

func TestMachineOfTaintedNodeIsRemoved(t *testing.T) {
	f, a, b := newPoolOfSeven(t, longGrace)
	f.node(b[2], corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "1", Effect: corev1.TaintEffectNoSchedule})
	f.scale("web", 6)
	f.awaitSizes("web", []string{"a", "b"}, 4, 2)
	f.wantOnlyRemoved("web", slices.Sorted(slices.Values(slices.Concat(a, b))), []string{b[2]})
}

// A taint that only a stale cache shows, or that is on a second Node with the same provider ID,
// does not select a machine for removal.
func TestInvalidTaintRemovesNoMachine(t *testing.T) {
	toBeDeleted := corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "1", Effect: corev1.TaintEffectNoSchedule}
	for name, prepare := range map[string]func(f *fixture, victim string){
		"removed taint": func(f *fixture, victim string) {
			f.node(victim)
			show := func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, toBeDeleted) }
			f.nodes.stale.Store(&show)
		},
		"taint of another Node": func(f *fixture, victim string) {
			f.node(victim)
			f.nodeNamed("other-"+victim, victim, toBeDeleted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, b := newPoolOfSeven(t, time.Millisecond)
			prepare(f, b[2])
			f.scale("web", 6)
			f.awaitSizes("web", []string{"a", "b"}, 3, 3)
			if got := f.liveInstances("b", "web"); !slices.Equal(got, b) {
				t.Errorf("instances %v on b, want %v", got, b)
			}
		})
	}
}

// An annotated machine stays unless the replicas are lowered.
func TestAnnotationWithoutScaleDownRemovesNothing(t *testing.T) {
	f, a, _ := newPoolOfSeven(t, 0)
	f.annotateForDeletion(a[0])
	f.scale("web", 8)
	f.awaitSizes("web", []string{"a", "b"}, 4, 4)
	if !slices.Contains(f.liveInstances("a", "web"), a[0]) {
		t.Errorf("%s is gone", a[0])
	}
}

// After the grace period the shards choose. A machine that is annotated then is the first of
// the next scale-down.
func TestLateAnnotationCountsForNextScaleDown(t *testing.T) {
	f, _, b := newPoolOfSeven(t, time.Millisecond)
	f.scale("web", 6)
	f.awaitSizes("web", []string{"a", "b"}, 3, 3)
	f.annotateForDeletion(b[2])
	f.eventually("the operator's cache has the annotation", func() error {
		var m clusterv1.Machine
		if err := f.core.api.Get(t.Context(), f.key(b[2]), &m); err != nil || m.Annotations[clusterv1.DeleteMachineAnnotation] == "" {
			return fmt.Errorf("annotations %v: %w", m.Annotations, err)
		}
		return nil
	})
	f.scale("web", 5)
	f.awaitSizes("web", []string{"a", "b"}, 3, 2)
	if got := f.liveInstances("b", "web"); !slices.Equal(got, b[:2]) {
		t.Errorf("instances %v on b, want %v", got, b[:2])
	}
}

// An instance stays in its part's spec.remove until it is gone, and no longer.
func TestPartRemoveIsClearedOnceInstanceIsGone(t *testing.T) {
	f, _, b := newPoolOfSeven(t, longGrace)
	f.shards.Shard("b").Stop()
	f.annotateForDeletion(b[0])
	f.scale("web", 6)
	f.eventually("spec.remove has the instance", func() error {
		if got := f.part("web--b").Spec; *got.Size != 2 || !slices.Equal(got.Remove, instanceIDs(b[0])) {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
	f.shards.Shard("b").Start()
	f.awaitSizes("web", []string{"a", "b"}, 4, 2)
	f.eventually("spec.remove is empty", func() error {
		if got := f.part("web--b").Spec; *got.Size != 2 || len(got.Remove) != 0 {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
	if got := f.liveInstances("b", "web"); !slices.Equal(got, b[1:]) {
		t.Errorf("instances %v on b, want %v", got, b[1:])
	}
}

// The Cluster Autoscaler cancels a failed scale-up by lowering only the replicas. That removes
// missing instances, and no existing node.
func TestScaleDownRemovesMissingInstancesFirst(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.runOperator(f.shards)
	f.shards.Shard("a").NoRoom(true)
	f.pool("web", 4, "a", "b")
	f.eventually("each part has size 2", func() error {
		if sizes := f.sizes("web", "a", "b"); !slices.Equal(sizes, []int32{2, 2}) {
			return fmt.Errorf("%v", sizes)
		}
		return nil
	})
	f.awaitMachines("web", 2)
	before := f.liveInstances("b", "web")
	f.scale("web", 2)
	f.awaitSizes("web", []string{"a", "b"}, 0, 2)
	if now := f.liveInstances("b", "web"); !slices.Equal(now, before) {
		t.Errorf("instances %v, want %v", now, before)
	}
}

// guard adds the finalizer that the controller of NstanceMachines sets, so that an instance's
// objects stay until it is gone.
func (f *fixture) guard(id string) {
	f.t.Helper()
	f.patch(&v1beta1.NstanceMachine{ObjectMeta: metav1.ObjectMeta{Name: id}}, `{"metadata":{"finalizers":["`+v1beta1.Finalizer+`"]}}`)
	f.eventually("the operator's cache has the finalizer", func() error {
		var m v1beta1.NstanceMachine
		if err := f.core.api.Get(f.t.Context(), f.key(id), &m); err != nil || len(m.Finalizers) == 0 {
			return fmt.Errorf("finalizers %v: %w", m.Finalizers, err)
		}
		return nil
	})
}

// unguard removes it once the instance is gone.
func (f *fixture) unguard(id string) {
	f.t.Helper()
	f.patch(&v1beta1.NstanceMachine{ObjectMeta: metav1.ObjectMeta{Name: id}}, `{"metadata":{"finalizers":null}}`)
}

// The Machine of an instance that its shard drains is deleted from the first moment, so that
// the Cluster Autoscaler counts it as leaving; its objects stay until the instance is gone.
func TestDrainingInstanceIsAnnounced(t *testing.T) {
	f, a, _ := newPoolOfSeven(t, longGrace)
	id, spare := a[0], a[1]
	f.guard(id)
	f.shards.Shard("a").Drain(id, "expired", time.Now().Add(time.Hour))
	f.shards.Shard("a").Drain(spare, "expired", time.Now().Add(time.Hour)) // without the finalizer
	f.eventually("the Machine is being deleted", func() error {
		var m clusterv1.Machine
		if err := f.api.Get(t.Context(), f.key(id), &m); err != nil || m.DeletionTimestamp.IsZero() {
			return fmt.Errorf("deleted at %v: %w", m.DeletionTimestamp, err)
		}
		return nil
	})
	var m v1beta1.NstanceMachine
	f.must(f.api.Get(t.Context(), f.key(id), &m))
	f.must(f.api.Get(t.Context(), f.key(spare), &m))
	if !slices.Contains(f.get("web").Spec.ProviderIDList, "process:///"+id) || !m.DeletionTimestamp.IsZero() {
		t.Error("the instance is not listed while it drains, or an object that nothing guards is deleted")
	}
	f.unguard(id)
}

// A Machine that is being deleted counts when its pool shrinks: no other one goes besides.
func TestDeletedMachineIsRemovedFirst(t *testing.T) {
	f, a, b := newPoolOfSeven(t, longGrace)
	victim := b[1]
	f.guard(victim)
	f.must(f.api.Delete(t.Context(), &clusterv1.Machine{ObjectMeta: f.meta(victim)}))
	f.annotateForDeletion(a[0]) // counts only for the next one
	f.scale("web", 6)
	f.awaitSizes("web", []string{"a", "b"}, 4, 2)
	f.unguard(victim)
	f.wantOnlyRemoved("web", slices.Sorted(slices.Values(slices.Concat(a, b))), []string{victim})
}

// While the replacement of an instance that is being drained has not come up, a scale-down
// takes that, on whichever shard, and no working machine.
func TestScaleDownCountsDrainingInstance(t *testing.T) {
	f, a, b := newPoolOfSeven(t, time.Millisecond)
	f.shards.Shard("b").SetTiming(func(timing *shardstest.Timing) { timing.Boot = time.Hour })
	f.guard(b[0])
	f.shards.Shard("b").Drain(b[0], "termination-notice", time.Now().Add(time.Hour))
	f.eventually("the operator knows the replacement", func() error {
		phases := map[nstancev1.InstancePhase]int{}
		for _, i := range f.shards.Set.Instances("b", "web") {
			if i.GetNodeProviderId() != "" {
				phases[i.GetPhase()]++
			}
		}
		if phases[nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING] != 2 || phases[nstancev1.InstancePhase_INSTANCE_PHASE_PENDING] != 1 {
			return fmt.Errorf("%v", phases)
		}
		return nil
	})
	f.scale("web", 6)
	f.eventually("b's part is smaller", func() error {
		if sizes := f.sizes("web", "a", "b"); !slices.Equal(sizes, []int32{4, 2}) {
			return fmt.Errorf("%v", sizes)
		}
		return nil
	})
	f.eventually("the replacement is gone", func() error {
		if got := f.liveInstances("b", "web"); !slices.Equal(got, b) {
			return fmt.Errorf("instances %v on b, want %v", got, b)
		}
		return nil
	})
	if got := f.liveInstances("a", "web"); !slices.Equal(got, a) {
		t.Errorf("instances %v on a, want %v", got, a)
	}
	f.unguard(b[0])
}
