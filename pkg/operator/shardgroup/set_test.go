package shardgroup_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// TestSet: the same with shards behind a network: one of them is made larger, loses
// answers, dies in the middle and comes back; its groups converge, and the other shard's
// never notice.
func TestSet(t *testing.T) {
	s := newSite(t)
	world := shardstest.Start(t, "a", "b")
	a := world.Shard("a")
	a.AddGroup("web", 2, "knd")
	world.Synced()
	s.set = world.Set
	s.start()
	o, other := s.object("web", "a", 2), s.object("jobs", "b", 1)
	other.Spec.Template, other.Spec.Rotation.MaxSurge = "knd", new(intstr.FromString("50%"))
	s.create(o)
	s.create(other)
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	s.awaits(other, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if g := world.Shard("b").Group("jobs"); g.GetMaxSurge() != "50%" {
		t.Errorf("the group is %v", g)
	}
	if n := len(a.Calls("UpsertGroup")); n > 0 {
		t.Errorf("%d changes of what is as it is wanted", n)
	}

	a.Lose("UpsertGroup", status.Error(codes.Unavailable, "the leader is gone"), 1)
	s.scale(o, 4)
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")

	a.Stop()
	s.resize(o, 5)
	s.awaits(o, v1beta1.ConditionShardReachable, metav1.ConditionFalse, "ShardUnreachable")
	s.scale(other, 2)
	s.awaits(other, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	a.Start()
	s.awaits(o, v1beta1.ConditionShardReachable, metav1.ConditionTrue, "Reachable")
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if g := a.Group("web"); g.GetSize() != 5 || g.GetActualSize() != 5 {
		t.Errorf("the group is %v", g)
	}

	world.Shard("a").SetTiming(func(t *shardstest.Timing) { t.Drain = 0 })
	s.delete(o)
	s.awaitsGone(o)
	if g := a.Group("web"); g != nil {
		t.Errorf("the group is %v", g)
	}
}

// scale changes an object's size, and waits until its shard's group has it.
func (s *site) scale(o *v1beta1.NstanceShardGroup, size int32) {
	s.t.Helper()
	s.resize(o, size)
	s.eventually("the status shows it", func() error {
		if err := s.get(o); err != nil {
			return err
		}
		if c := o.Status.Config; c.Size == nil || *c.Size != size {
			return fmt.Errorf("it shows %+v", c)
		}
		return nil
	})
}

func (s *site) resize(o *v1beta1.NstanceShardGroup, size int32) {
	s.t.Helper()
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = &size })
}

// TestStatusOfTheLastState: states that follow one another faster than the cache does
// are not mixed, and the last one is shown.
func TestStatusOfTheLastState(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.settled("a", web(2))
	for n := range 100 {
		s.shards.change("a", func(x *shardState) { x.groups["web"].ActualSize = 1 })
		if n%2 == 0 {
			s.must(s.get(o)) // some time goes by
		}
		s.shards.change("a", func(x *shardState) { x.groups["web"].ActualSize = 2 })
		s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	}
	s.eventually("all of it is of the last state", func() error {
		if err := s.get(o); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionReady); *o.Status.ActualSize != 2 || c.Reason != "Ready" {
			return fmt.Errorf("%d instances run, and Ready is %+v", *o.Status.ActualSize, c)
		}
		return nil
	})
}
