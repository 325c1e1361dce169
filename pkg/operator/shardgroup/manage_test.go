package shardgroup_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const another = "NstanceShardGroup other/web--a"

// TestManager: an object claims a group that nothing manages, with its size, and does so again after a change by
// force, which it undoes.
func TestManager(t *testing.T) {
	f := newFixture(t, "a")
	f.addGroup("a", staticGroup(3))
	f.managedBy("a", "")
	f.start()
	o := f.object("web", "a", 3)
	f.create(o)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	f.awaitManager("a", f.manager(o))
	if all := f.upserts("a"); len(all) != 1 || all[0].GetSize() != 3 || all[0].Template != nil || all[0].GetForce() {
		t.Errorf("pushed %v", all)
	}
	f.shards.Shard("a").Upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: new(int32(5))})
	f.awaitManager("a", f.manager(o))
	if size := f.shards.Shard("a").Group("web").GetSize(); size != 3 {
		t.Errorf("its size is %d", size)
	}
}

// TestManagedBySomethingElse: a group that something else manages stays as it is, and its object says what
// manages it, whether its spec differs or not. It manages the group once nothing else does.
func TestManagedBySomethingElse(t *testing.T) {
	f := newFixture(t, "a")
	f.addGroup("a", dynamicGroup(2))
	f.managedBy("a", another)
	f.start()
	o := f.object("web", "a", 2)
	f.create(o)
	for _, size := range []int32{2, 3} {
		f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = &size })
		f.awaitCondition(o, v1beta1.ConditionConfigValid, metav1.ConditionFalse, "Refused")
		c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionConfigValid)
		if !strings.Contains(c.Message, "managed by "+another) {
			t.Errorf("message %q", c.Message)
		}
	}
	if g := f.shards.Shard("a").Group("web"); g.GetSize() != 2 || g.GetManager() != another {
		t.Errorf("the group is %v", g)
	}
	f.managedBy("a", "")
	f.awaitManager("a", f.manager(o))
	f.awaitCondition(o, v1beta1.ConditionConfigValid, metav1.ConditionTrue, "Valid")
	if size := f.shards.Shard("a").Group("web").GetSize(); size != 3 {
		t.Errorf("its size is %d", size)
	}
}

// TestDeleteOfGroupManagedBySomethingElse: the group stays, and an event of its object says why.
func TestDeleteOfGroupManagedBySomethingElse(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	f.managedBy("a", another)
	f.delete(o)
	f.awaitGone(o)
	f.awaitEvent(o, "GroupManaged")
	if g := f.shards.Shard("a").Group("web"); g.GetSize() != 2 || g.GetManager() != another {
		t.Errorf("the group is %v", g)
	}
}

// TestStillManaged: an object whose static group can't be left without a manager is released, and says so.
func TestStillManaged(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", staticGroup(2))
	f.shards.Shard("a").Fail("UpsertGroup", status.Error(codes.FailedPrecondition, "the record can't be read"), -1)
	f.delete(o)
	f.awaitGone(o)
	f.awaitEvent(o, "StillManaged")
	f.awaitEvent(o, "GroupIsStatic")
}

// TestShardWithoutManagers: a shard of a version that knows no managers is asked once.
func TestShardWithoutManagers(t *testing.T) {
	f := newFixture(t, "a")
	f.addGroup("a", dynamicGroup(2))
	f.managedBy("a", "")
	shardstest.WithoutManagers(f.shards.Shard("a"))
	f.start()
	o := f.object("web", "a", 2)
	f.create(o)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	for n := range 20 {
		f.shards.Shard("a").SetCondition("web", "Degraded", n%2 == 0, "Some", "")
		f.shards.Heard()
	}
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(3)) })
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	f.awaitObserved(o)
	if all := f.upserts("a"); len(all) != 2 || all[1].GetSize() != 3 {
		t.Errorf("%d calls: %v", len(all), all)
	}
}
