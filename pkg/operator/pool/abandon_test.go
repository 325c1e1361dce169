package pool_test

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// Of a group that its shard keeps, or of a shard that can't be asked any more, the
// instances live on without their pool. Nobody drains or deletes their nodes, neither
// core nor what collects the garbage of the MachinePool.
func TestADeletedPoolLeavesLivingMachinesAlone(t *testing.T) {
	for name, before := range map[string]func(*stage){
		"static":         func(*stage) {},
		"not configured": func(s *stage) { s.world.Configure("b") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, "a", "b")
			s.world.Shard("a").Static("web", 2, "knd")
			s.world.Synced()
			s.run(s.world)
			s.pool("web", 2, "a")
			s.settled("web", []string{"a"}, 2)
			s.machines("web", 2)
			ids := s.living("a", "web")
			for _, id := range ids {
				s.patch(&v1beta1.NstanceMachine{ObjectMeta: s.meta(id)}, `{"metadata":{"finalizers":["`+v1beta1.Finalizer+`"]}}`)
			}
			before(s)
			s.must(s.api.Delete(t.Context(), s.get("web")))
			s.eventually("the pool is gone", func() error {
				if err := s.api.Get(t.Context(), s.key("web"), &v1beta1.NstanceMachinePool{}); !apierrors.IsNotFound(err) {
					return fmt.Errorf("it is there: %w", err)
				}
				return nil
			})
			s.must(s.api.DeleteAllOf(t.Context(), &clusterv1.Machine{}, client.InNamespace(s.ns)))
			s.must(s.api.DeleteAllOf(t.Context(), &v1beta1.NstanceMachine{}, client.InNamespace(s.ns)))
			s.eventually("all its machines are gone", func() error {
				var machines clusterv1.MachineList
				var infra v1beta1.NstanceMachineList
				s.must(s.api.List(t.Context(), &machines, client.InNamespace(s.ns)))
				s.must(s.api.List(t.Context(), &infra, client.InNamespace(s.ns)))
				if len(machines.Items) > 0 || len(infra.Items) > 0 || len(s.core.hasDrained()) > 0 {
					return fmt.Errorf("%d Machines and %d NstanceMachines are left, core drained %v",
						len(machines.Items), len(infra.Items), s.core.hasDrained())
				}
				return nil
			})
			if now := s.living("a", "web"); fmt.Sprint(now) != fmt.Sprint(ids) {
				t.Errorf("of the instances %v live %v", ids, now)
			}
		})
	}
}
