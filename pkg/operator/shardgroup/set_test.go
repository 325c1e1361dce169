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

// TestSet: a shard's group is scaled, a response is lost, and the shard stops and starts again.
// Its groups converge, and the other shard's are not affected.
func TestSet(t *testing.T) {
	f := newFixture(t, "a", "b")
	a := f.shards.Shard("a")
	f.addGroup("a", dynamicGroup(2))
	f.shards.Synced()
	f.start()
	o, other := f.object("web", "a", 2), f.object("jobs", "b", 1)
	other.Spec.Template, other.Spec.Rotation.MaxSurge = "knd", new(intstr.FromString("50%"))
	f.create(o)
	f.create(other)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	f.awaitCondition(other, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if g := f.shards.Shard("b").Group("jobs"); g.GetMaxSurge() != "50%" {
		t.Errorf("the group is %v", g)
	}
	if n := len(a.Calls("UpsertGroup")); n > 0 {
		t.Errorf("%d changes of a group without differences", n)
	}

	a.Lose("UpsertGroup", status.Error(codes.Unavailable, "the leader is gone"), 1)
	f.scale(o, 4)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")

	a.Stop()
	f.resize(o, 5)
	f.awaitCondition(o, v1beta1.ConditionShardReachable, metav1.ConditionFalse, "ShardUnreachable")
	f.scale(other, 2)
	f.awaitCondition(other, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	a.Start()
	f.awaitCondition(o, v1beta1.ConditionShardReachable, metav1.ConditionTrue, "Reachable")
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if g := a.Group("web"); g.GetSize() != 5 || g.GetActualSize() != 5 {
		t.Errorf("the group is %v", g)
	}

	f.shards.Shard("a").SetTiming(func(t *shardstest.Timing) { t.Drain = 0 })
	f.delete(o)
	f.awaitGone(o)
	if g := a.Group("web"); g != nil {
		t.Errorf("the group is %v", g)
	}
}

// scale changes an object's size, and waits until its shard's group has it.
func (f *fixture) scale(o *v1beta1.NstanceShardGroup, size int32) {
	f.t.Helper()
	f.resize(o, size)
	f.eventually("the status shows the size", func() error {
		if err := f.get(o); err != nil {
			return err
		}
		if c := o.Status.Config; c.Size == nil || *c.Size != size {
			return fmt.Errorf("config %+v", c)
		}
		return nil
	})
}

func (f *fixture) resize(o *v1beta1.NstanceShardGroup, size int32) {
	f.t.Helper()
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = &size })
}

// TestStatusShowsLastState: states that follow one another faster than the cache is updated are
// not mixed, and the last one is shown.
func TestStatusShowsLastState(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", staticGroup(2))
	a := f.shards.Shard("a")
	for n := range 100 {
		a.NoRoom(true)
		a.Kill(a.Group("web").GetInstances()[0].GetId())
		if n%2 == 0 {
			f.shards.Heard() // otherwise both states may arrive together
			f.must(f.get(o))
		}
		a.NoRoom(false)
		f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	}
	f.eventually("the status shows only the last state", func() error {
		if err := f.get(o); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionReady); *o.Status.ActualSize != 2 || c.Reason != "Ready" {
			return fmt.Errorf("%d instances run, and Ready is %+v", *o.Status.ActualSize, c)
		}
		return nil
	})
}
