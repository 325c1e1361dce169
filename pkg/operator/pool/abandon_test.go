package pool_test

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// Instances of a static group, or on a shard that is no longer configured, outlive their pool.
// Their nodes are neither drained nor deleted, by Cluster API or by the garbage collection of
// the MachinePool.
func TestDeletedPoolKeepsRemainingInstances(t *testing.T) {
	for name, before := range map[string]func(*fixture){
		"static group":         func(*fixture) {},
		"shard not configured": func(f *fixture) { f.shards.Configure("b") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "a", "b")
			f.shards.Shard("a").Static("web", 2, "knd")
			f.shards.Synced()
			f.runOperator(f.shards)
			f.pool("web", 2, "a")
			f.awaitSizes("web", []string{"a"}, 2)
			f.awaitMachines("web", 2)
			ids := f.liveInstances("a", "web")
			for _, id := range ids {
				f.patch(&v1beta1.NstanceMachine{ObjectMeta: f.meta(id)}, `{"metadata":{"finalizers":["`+v1beta1.Finalizer+`"]}}`)
			}
			before(f)
			f.must(f.api.Delete(t.Context(), f.get("web")))
			f.eventually("the pool is gone", func() error {
				if err := f.api.Get(t.Context(), f.key("web"), &v1beta1.NstanceMachinePool{}); !apierrors.IsNotFound(err) {
					return fmt.Errorf("it exists: %w", err)
				}
				return nil
			})
			f.must(f.api.DeleteAllOf(t.Context(), &clusterv1.Machine{}, client.InNamespace(f.ns)))
			f.must(f.api.DeleteAllOf(t.Context(), &v1beta1.NstanceMachine{}, client.InNamespace(f.ns)))
			f.eventually("all its machines are gone", func() error {
				var machines clusterv1.MachineList
				var infra v1beta1.NstanceMachineList
				f.must(f.api.List(t.Context(), &machines, client.InNamespace(f.ns)))
				f.must(f.api.List(t.Context(), &infra, client.InNamespace(f.ns)))
				if len(machines.Items) > 0 || len(infra.Items) > 0 || len(f.core.drainedMachines()) > 0 {
					return fmt.Errorf("%d Machines and %d NstanceMachines are left, and nodes of %v were drained",
						len(machines.Items), len(infra.Items), f.core.drainedMachines())
				}
				return nil
			})
			if now := f.liveInstances("a", "web"); fmt.Sprint(now) != fmt.Sprint(ids) {
				t.Errorf("instances %v before, %v now", ids, now)
			}
		})
	}
}
