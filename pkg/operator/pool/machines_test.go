package pool_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

func TestEveryInstanceHasAnNstanceMachine(t *testing.T) {
	s := start(t, "a")
	s.pool("web", 2, "a")
	s.settled("web", []string{"a"}, 2)
	s.machines("web", 2)
	for _, id := range s.living("a", "web") {
		var m v1beta1.NstanceMachine
		s.must(s.api.Get(t.Context(), s.key(id), &m))
		if m.Labels[clusterv1.MachinePoolNameLabel] != "web" || m.Labels[clusterv1.ClusterNameLabel] != clusterName ||
			m.Spec.Group != "web" || m.Spec.Shard != "a" || string(m.Spec.InstanceID) != id || m.Spec.ProviderID != "process:///"+id {
			t.Errorf("the NstanceMachine of %s: %+v", id, m)
		}
		if by := m.OwnerReferences[0]; by.Kind != "NstanceMachinePool" || by.Name != "web" || by.Controller != nil {
			t.Errorf("it is owned by %+v, want its pool, which leaves the control to core", by)
		}
	}
}

// Core finds what belongs to a pool by a label, which holds a hash when the name is
// not fit for one.
func TestALongNameIsHashedAsCoreDoesIt(t *testing.T) {
	s := start(t, "a")
	const name = "this-is-the-name-of-a-machine-pool-that-is-too-long-for-a-label-of-kubernetes"
	s.create(&v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}, Template: "knd"},
	})
	s.create(machinePool(name, 1))
	s.settled("web", []string{"a"}, 1)
	s.eventually("the label", func() error {
		var m v1beta1.NstanceMachine
		if err := s.api.Get(t.Context(), s.key(s.living("a", "web")[0]), &m); err != nil {
			return err
		}
		if got := m.Labels[clusterv1.MachinePoolNameLabel]; got != "hash_KyNEqA_z" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// Once an instance is gone its Machine goes, undrained, and with it all there is.
func TestTheMachineOfADeadInstanceGoes(t *testing.T) {
	s := start(t, "a")
	s.pool("web", 2, "a")
	s.settled("web", []string{"a"}, 2)
	s.machines("web", 2)
	id := s.living("a", "web")[0]
	held := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: id}}
	s.patch(held, `{"metadata":{"finalizers":["machine.cluster.x-k8s.io","nstance.dev/held"]}}`)
	s.must(s.world.Set.DeleteInstance(t.Context(), "a", id)) // which the shard replaces
	s.eventually("the Machine goes, without a drain", func() error {
		var m clusterv1.Machine
		s.must(s.api.Get(t.Context(), s.key(id), &m))
		if _, excluded := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; m.DeletionTimestamp.IsZero() || !excluded {
			return fmt.Errorf("it is %+v", m.ObjectMeta)
		}
		return nil
	})
	// Before that, core would see an NstanceMachine without a Machine, and make one.
	s.eventually("the NstanceMachine goes", func() error {
		if err := s.core.api.Get(t.Context(), s.key(id), &v1beta1.NstanceMachine{}); !errors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	s.patch(held, `{"metadata":{"finalizers":null}}`)
	s.settled("web", []string{"a"}, 2)
	s.machines("web", 2)
	s.listed("web", s.providerIDs("web", "a"))
}

// A Machine of a shard that is lost stays: nobody knows what became of it.
func TestMachinesOfALostShardStay(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 4, "a", "b")
	s.settled("web", []string{"a", "b"}, 2, 2)
	s.machines("web", 4)
	s.stop()
	s.forget("b", "a", "b")
	s.run(s.world)
	s.scale("web", 6)
	s.settled("web", []string{"a"}, 3)
	s.machines("web", 5)
}
