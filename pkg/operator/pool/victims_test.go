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
)

const deleteMachine = `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":"now"}}}`

func (s *stage) annotate(id string) {
	s.t.Helper()
	s.patch(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: id}}, deleteMachine)
}

// machines waits until core has made a Machine for each instance.
func (s *stage) machines(group string, want int) {
	s.t.Helper()
	s.eventually("all instances have Machines", func() error {
		var all clusterv1.MachineList
		s.must(s.api.List(s.t.Context(), &all, client.InNamespace(s.ns), client.MatchingLabels{clusterv1.MachinePoolNameLabel: group}))
		if len(all.Items) != want {
			return fmt.Errorf("%d of %d have", len(all.Items), want)
		}
		return nil
	})
}

// seven is a pool of 4 and 3, with a Machine for each instance.
func seven(t *testing.T, grace time.Duration) (s *stage, a, b []string) {
	t.Helper()
	s = newStage(t, "a", "b")
	s.grace = grace
	s.run(s.world)
	s.pool("web", 7, "a", "b")
	s.settled("web", []string{"a", "b"}, 4, 3)
	s.machines("web", 7)
	return s, s.living("a", "web"), s.living("b", "web")
}

// only waits until just the named instances are gone, and holds that none came.
func (s *stage) only(group string, before, gone []string) {
	s.t.Helper()
	want := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return slices.Contains(gone, id) })
	s.machines(group, len(want))
	now := slices.Sorted(slices.Values(slices.Concat(s.living("a", group), s.living("b", group))))
	if !slices.Equal(now, want) {
		s.t.Fatalf("there are %v, want %v", now, want)
	}
	if made := len(s.world.Shard("a").Instances(group)) + len(s.world.Shard("b").Instances(group)); made != len(before) {
		s.t.Fatalf("%d instances were made, want %d", made, len(before))
	}
}

// One machine is named and the replicas are lowered, as two writes: the named one goes,
// whichever write is first, though it is on the smaller shard.
func TestTheNamedMachineGoes(t *testing.T) {
	for _, c := range []struct {
		name     string
		together func(annotate, lower func())
	}{
		{"named first", func(annotate, lower func()) { annotate(); lower() }},
		{"named 5 ms before", func(annotate, lower func()) { annotate(); time.Sleep(5 * time.Millisecond); lower() }},
		{"lowered first", func(annotate, lower func()) { lower(); annotate() }},
		{"lowered 5 ms before", func(annotate, lower func()) { lower(); time.Sleep(5 * time.Millisecond); annotate() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, a, b := seven(t, 3*time.Second)
			victim := b[1]
			c.together(func() { s.annotate(victim) }, func() { s.scale("web", 6) })
			s.settled("web", []string{"a", "b"}, 4, 2)
			s.only("web", slices.Sorted(slices.Values(slices.Concat(a, b))), []string{victim})
			s.listed("web", s.providerIDs("web", "a", "b"))
		})
	}
}

// The autoscaler takes several, one after another.
func TestSeveralNamedMachinesGo(t *testing.T) {
	s, a, b := seven(t, 3*time.Second)
	gone := []string{b[0], b[2], a[3]}
	for i, id := range gone {
		s.annotate(id)
		s.scale("web", int32(6-i))
	}
	s.settled("web", []string{"a", "b"}, 3, 1)
	s.only("web", slices.Sorted(slices.Values(slices.Concat(a, b))), gone)
}

func TestTheMachineOfATaintedNodeGoes(t *testing.T) {
	s, a, b := seven(t, time.Minute)
	s.node(b[2], corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "1", Effect: corev1.TaintEffectNoSchedule})
	s.scale("web", 6)
	s.settled("web", []string{"a", "b"}, 4, 2)
	s.only("web", slices.Sorted(slices.Values(slices.Concat(a, b))), []string{b[2]})
}

// Named machines stay while the replicas do.
func TestANameWithoutFewerReplicasTakesNothing(t *testing.T) {
	s, a, _ := seven(t, 0)
	s.annotate(a[0])
	s.scale("web", 8)
	s.settled("web", []string{"a", "b"}, 4, 4)
	if !slices.Contains(s.living("a", "web"), a[0]) {
		t.Errorf("%s is gone", a[0])
	}
}

// After the grace the shards choose. Who is named then is the first the next time.
func TestANameThatComesTooLateCountsForTheNextTime(t *testing.T) {
	s, _, b := seven(t, time.Millisecond)
	s.scale("web", 6)
	s.settled("web", []string{"a", "b"}, 3, 3)
	s.annotate(b[2])
	s.scale("web", 5)
	s.settled("web", []string{"a", "b"}, 3, 2)
	if got := s.living("b", "web"); !slices.Equal(got, b[:2]) {
		t.Errorf("%v live on b, want %v", got, b[:2])
	}
}

// A name stays in the part until the instance is gone, and not longer.
func TestANameLeavesThePartWithItsInstance(t *testing.T) {
	s, _, b := seven(t, 3*time.Second)
	s.world.Shard("b").Stop()
	s.annotate(b[0])
	s.scale("web", 6)
	s.eventually("the part names it", func() error {
		if got := s.part("web--b").Spec; *got.Size != 2 || !slices.Equal(got.Remove, instanceIDs(b[0])) {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
	s.world.Shard("b").Start()
	s.settled("web", []string{"a", "b"}, 4, 2)
	s.eventually("the part names nobody", func() error {
		if got := s.part("web--b").Spec; *got.Size != 2 || len(got.Remove) != 0 {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
	if got := s.living("b", "web"); !slices.Equal(got, b[1:]) {
		t.Errorf("%v live on b, want %v", got, b[1:])
	}
}

// The Cluster Autoscaler takes back what it asked for and did not get: the replicas alone
// are lowered. What did not come is given up then, and no node that is there.
func TestWhatDidNotComeIsGivenUp(t *testing.T) {
	s := newStage(t, "a", "b")
	s.run(s.world)
	s.world.Shard("a").NoRoom(true)
	s.pool("web", 4, "a", "b")
	s.eventually("the shards are to have two each", func() error {
		if sizes := s.sizes("web", "a", "b"); !slices.Equal(sizes, []int32{2, 2}) {
			return fmt.Errorf("%v", sizes)
		}
		return nil
	})
	s.machines("web", 2)
	before := s.living("b", "web")
	s.scale("web", 2)
	s.settled("web", []string{"a", "b"}, 0, 2)
	if now := s.living("b", "web"); !slices.Equal(now, before) {
		t.Errorf("there are %v, want %v", now, before)
	}
}
