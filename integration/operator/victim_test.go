//go:build integration

package operator

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTheRightOneGoes: of seven, the annotated one is removed, whichever of the two writes comes
// first, and also from the shard that has fewer. No other one is removed, and it is not replaced. A
// Machine that is deleted without a change of the replicas is replaced.
func TestTheRightOneGoes(t *testing.T) {
	f := newFixture(t, nil)
	f.operate()
	f.running("web", 4)
	for _, order := range []struct {
		name string
		do   func(victim string)
	}{
		{"annotated, then scaled", func(victim string) { f.condemn(victim); f.scale("web", 6) }},
		{"scaled, then annotated", func(victim string) { f.scale("web", 6); f.condemn(victim) }},
		{"5 ms apart", func(victim string) { f.condemn(victim); time.Sleep(5 * time.Millisecond); f.scale("web", 6) }},
	} {
		t.Run(order.name, func(t *testing.T) {
			f := f.in(t)
			f.scale("web", 7)
			f.running("web", 7)
			before := f.settled("web", 7)
			smaller := f.instances("web", dev2)
			if len(smaller) >= len(f.instances("web", dev1)) {
				smaller = f.instances("web", dev1)
			}
			victim := smaller[len(smaller)-1].ID
			order.do(victim)
			f.running("web", 6)
			after := f.settled("web", 6)
			want := slices.DeleteFunc(before, func(id string) bool { return id == victim })
			if !slices.Equal(after, want) {
				t.Errorf("%v are there, want %v: %s was to go", after, want, victim)
			}
		})
	}
	t.Run("deleted while the replicas stay", func(t *testing.T) {
		f := f.in(t)
		before := f.settled("web", 6)
		m := &clusterv1.Machine{}
		if err := f.get(t.Context(), before[0], m); err != nil {
			t.Fatal(err)
		}
		if err := f.api.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		f.eventually("another one is there for it", func(context.Context) error {
			now := f.instances("web", "")
			if len(now) != 6 || slices.ContainsFunc(now, func(i instance) bool { return i.ID == before[0] }) {
				return fmt.Errorf("%v", now)
			}
			return nil
		})
		f.running("web", 6)
		f.settled("web", 6)
	})
}

// in returns the same fixture for a subtest.
func (f *fixture) in(t *testing.T) *fixture {
	part := *f
	part.T = t
	return &part
}

// condemn annotates a pool's Machine, as the Cluster Autoscaler does.
func (f *fixture) condemn(name string) {
	f.Helper()
	m := &clusterv1.Machine{}
	m.Namespace, m.Name = f.namespace, name
	patch := client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, clusterv1.DeleteMachineAnnotation))
	if err := f.api.Patch(f.Context(), m, patch); err != nil {
		f.Fatal(err)
	}
}

// settled waits until a pool has exactly this many instances, Nodes and Machines, and returns their
// names, sorted.
func (f *fixture) settled(group string, count int) (ids []string) {
	f.Helper()
	f.eventually(fmt.Sprintf("%d instances with a Node and a Machine each", count), func(ctx context.Context) error {
		ids = nil
		for _, i := range f.instances(group, "") {
			ids = append(ids, i.ID)
		}
		nodes, err := f.nodes(ctx, group, "")
		if err != nil {
			return err
		}
		list, err := f.machines(ctx, group)
		if err != nil {
			return err
		}
		var machines []string
		for _, m := range list {
			machines = append(machines, m.Name)
		}
		slices.Sort(ids)
		slices.Sort(nodes)
		slices.Sort(machines)
		if len(ids) != count || !slices.Equal(ids, nodes) || !slices.Equal(ids, machines) {
			return fmt.Errorf("instances %v\nnodes %v\nmachines %v", ids, nodes, machines)
		}
		return nil
	})
	return ids
}
