package pool_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

func TestInstancesHaveNstanceMachines(t *testing.T) {
	f := startFixture(t, "a")
	f.pool("web", 2, "a")
	f.awaitSizes("web", []string{"a"}, 2)
	f.awaitMachines("web", 2)
	for _, id := range f.liveInstances("a", "web") {
		var m v1beta1.NstanceMachine
		f.must(f.api.Get(t.Context(), f.key(id), &m))
		if m.Labels[clusterv1.MachinePoolNameLabel] != "web" || m.Labels[clusterv1.ClusterNameLabel] != clusterName ||
			m.Spec.Group != "web" || m.Spec.Shard != "a" || string(m.Spec.InstanceID) != id || m.Spec.ProviderID != "process:///"+id {
			t.Errorf("the NstanceMachine of %s: %+v", id, m)
		}
		if by := m.OwnerReferences[0]; by.Kind != "NstanceMachinePool" || by.Name != "web" || by.Controller != nil {
			t.Errorf("owner %+v, want its pool, not as the controller", by)
		}
	}
}

// Cluster API finds a pool's objects by a label, whose value is a hash if the name is no valid
// label value.
func TestLongPoolNameIsHashedInLabel(t *testing.T) {
	f := startFixture(t, "a")
	const name = "this-is-the-name-of-a-machine-pool-that-is-too-long-for-a-label-of-kubernetes"
	f.create(&v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}, Template: "knd"},
	})
	f.create(machinePool(name, 1))
	f.awaitSizes("web", []string{"a"}, 1)
	f.eventually("the label", func() error {
		var m v1beta1.NstanceMachine
		if err := f.api.Get(t.Context(), f.key(f.liveInstances("a", "web")[0]), &m); err != nil {
			return err
		}
		if got := m.Labels[clusterv1.MachinePoolNameLabel]; got != "hash_KyNEqA_z" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// Once an instance is gone, its Machine is deleted without a drain, and then its
// NstanceMachine.
func TestMachineOfGoneInstanceIsDeleted(t *testing.T) {
	f := startFixture(t, "a")
	f.pool("web", 2, "a")
	f.awaitSizes("web", []string{"a"}, 2)
	f.awaitMachines("web", 2)
	id := f.liveInstances("a", "web")[0]
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: id}}
	f.patch(machine, `{"metadata":{"finalizers":["machine.cluster.x-k8s.io","nstance.dev/held"]}}`)
	f.must(f.shards.Set.DeleteInstance(t.Context(), "a", id)) // the shard replaces it
	f.eventually("the Machine is deleted without a drain", func() error {
		var m clusterv1.Machine
		f.must(f.api.Get(t.Context(), f.key(id), &m))
		if _, excluded := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; m.DeletionTimestamp.IsZero() || !excluded {
			return fmt.Errorf("it is %+v", m.ObjectMeta)
		}
		return nil
	})
	// Before the Machine is deleted, Cluster API would see an NstanceMachine without a Machine, and
	// create one.
	f.eventually("the NstanceMachine is gone", func() error {
		if err := f.core.api.Get(t.Context(), f.key(id), &v1beta1.NstanceMachine{}); !errors.IsNotFound(err) {
			return fmt.Errorf("it exists: %w", err)
		}
		return nil
	})
	f.patch(machine, `{"metadata":{"finalizers":null}}`)
	f.awaitSizes("web", []string{"a"}, 2)
	f.awaitMachines("web", 2)
	f.awaitProviderIDs("web", f.providerIDs("web", "a"))
}

// Machines of an unreachable shard stay, because the state of their instances is unknown.
func TestMachinesStayWhileShardIsUnreachable(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 4, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	f.awaitMachines("web", 4)
	f.stop()
	f.makeUnknown("b", "a", "b")
	f.runOperator(f.shards)
	f.scale("web", 6)
	f.awaitSizes("web", []string{"a"}, 3)
	f.awaitMachines("web", 5)
}
