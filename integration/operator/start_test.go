//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestFreshStart: the groups of both shards are imported, and Cluster API's own controllers find
// everything that they require of a provider. Then a pool is scaled up and down.
func TestFreshStart(t *testing.T) {
	f := newFixture(t, nil)
	f.operate()
	f.running("web", 4)
	f.available()

	var pool v1beta1.NstanceMachinePool
	if err := f.get(t.Context(), "web", &pool); err != nil {
		t.Fatal(err)
	}
	if len(pool.Spec.Shards) != 2 || len(pool.Spec.ProviderIDList) != 4 {
		t.Errorf("%+v", pool.Spec)
	}
	f.eventually("each instance has a Machine with a node", func(ctx context.Context) error {
		machines, err := f.machines(ctx, "web")
		if err != nil || len(machines) != 4 {
			return fmt.Errorf("%d machines: %w", len(machines), err)
		}
		for _, m := range machines {
			if m.Status.Phase != string(clusterv1.MachinePhaseRunning) || m.Status.NodeRef.Name == "" {
				return fmt.Errorf("machine %s: phase %s, node %q", m.Name, m.Status.Phase, m.Status.NodeRef.Name)
			}
		}
		return nil
	})

	began := time.Now()
	f.scale("web", 7)
	f.eventually("the shards have 4 and 3", func(context.Context) error {
		if sizes := f.sizes("web"); sizes != [2]int{4, 3} {
			return fmt.Errorf("they have %v", sizes)
		}
		return nil
	})
	t.Logf("4 and 3 on the shards after %v", time.Since(began).Round(time.Millisecond))
	f.running("web", 7)

	f.scale("web", 4)
	f.eventually("the shards have 2 and 2 again", func(context.Context) error {
		if sizes := f.sizes("web"); sizes != [2]int{2, 2} {
			return fmt.Errorf("they have %v", sizes)
		}
		return nil
	})
	f.running("web", 4)
	f.eventually("nodes and Machines of those that left are gone", func(ctx context.Context) error {
		nodes, err := f.nodes(ctx, "web", "")
		if err != nil || len(nodes) != 4 {
			return fmt.Errorf("%d nodes: %w", len(nodes), err)
		}
		machines, err := f.machines(ctx, "web")
		if err != nil || len(machines) != 4 {
			return fmt.Errorf("%d machines: %w", len(machines), err)
		}
		return nil
	})
}
