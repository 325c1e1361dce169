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

// TestTheRightOneGoes: of seven, the one that was annotated leaves, whichever of the two
// writes comes first, and also from the shard that has fewer. No other one goes, and
// nobody comes for it. A Machine that is deleted while the replicas stay is replaced.
func TestTheRightOneGoes(t *testing.T) {
	w := begin(t, nil)
	w.operate()
	w.running("web", 4)
	for _, order := range []struct {
		name string
		do   func(victim string)
	}{
		{"annotated, then scaled", func(victim string) { w.condemn(victim); w.scale("web", 6) }},
		{"scaled, then annotated", func(victim string) { w.scale("web", 6); w.condemn(victim) }},
		{"5 ms apart", func(victim string) { w.condemn(victim); time.Sleep(5 * time.Millisecond); w.scale("web", 6) }},
	} {
		t.Run(order.name, func(t *testing.T) {
			w := w.in(t)
			w.scale("web", 7)
			w.running("web", 7)
			before := w.settled("web", 7)
			smaller := w.instances("web", dev2)
			if len(smaller) >= len(w.instances("web", dev1)) {
				smaller = w.instances("web", dev1)
			}
			victim := smaller[len(smaller)-1].ID
			order.do(victim)
			w.running("web", 6)
			after := w.settled("web", 6)
			want := slices.DeleteFunc(before, func(id string) bool { return id == victim })
			if !slices.Equal(after, want) {
				t.Errorf("%v are there, want %v: %s was to go", after, want, victim)
			}
		})
	}
	t.Run("deleted while the replicas stay", func(t *testing.T) {
		w := w.in(t)
		before := w.settled("web", 6)
		m := &clusterv1.Machine{}
		if err := w.get(t.Context(), before[0], m); err != nil {
			t.Fatal(err)
		}
		if err := w.api.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		w.eventually("another one is there for it", func(context.Context) error {
			now := w.instances("web", "")
			if len(now) != 6 || slices.ContainsFunc(now, func(i instance) bool { return i.ID == before[0] }) {
				return fmt.Errorf("%v", now)
			}
			return nil
		})
		w.running("web", 6)
		w.settled("web", 6)
	})
}

// in is the same world for a part of a story.
func (w *world) in(t *testing.T) *world {
	part := *w
	part.T = t
	return &part
}

// condemn annotates a pool's Machine, as the Cluster Autoscaler does.
func (w *world) condemn(name string) {
	w.Helper()
	m := &clusterv1.Machine{}
	m.Namespace, m.Name = w.namespace, name
	patch := client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, clusterv1.DeleteMachineAnnotation))
	if err := w.api.Patch(w.Context(), m, patch); err != nil {
		w.Fatal(err)
	}
}

// settled waits until instances, Nodes and Machines of a pool are the same so many, and
// returns their names, sorted.
func (w *world) settled(group string, count int) (ids []string) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d instances with a Node and a Machine each", count), func(ctx context.Context) error {
		ids = nil
		for _, i := range w.instances(group, "") {
			ids = append(ids, i.ID)
		}
		nodes, err := w.nodes(ctx, group, "")
		if err != nil {
			return err
		}
		list, err := w.machines(ctx, group)
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
