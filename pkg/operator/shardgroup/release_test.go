package shardgroup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// createReady creates a group on a shard and its object, and waits until the object is ready.
func (f *fixture) createReady(shard string, g group) *v1beta1.NstanceShardGroup {
	f.t.Helper()
	f.addGroup(shard, g)
	o := f.object(g.key, shard, g.size)
	f.create(o)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	return o
}

func (f *fixture) delete(o *v1beta1.NstanceShardGroup) {
	f.t.Helper()
	f.must(f.client.Delete(f.t.Context(), o))
}

// TestDelete: the shard is called once to delete the group, and the object stays until the
// group is gone.
func TestDelete(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	f.delete(o)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "Deleting")
	for range 20 {
		f.shards.Reconnect()
		f.shards.Heard()
	}
	f.shards.Shard("a").KillAll("web")
	f.awaitGone(o)
	if all := f.deletes("a"); !slices.Equal(all, []string{"web"}) {
		t.Errorf("deleted %v", all)
	}
}

// TestDeleteOfStaticGroup: the shard refuses, an event gives the reason, and the object is
// released.
func TestDeleteOfStaticGroup(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", staticGroup(2))
	f.delete(o)
	f.awaitGone(o)
	f.awaitEvent(o, "GroupIsStatic")
	if g := f.shards.Shard("a").Group("web"); g.GetSize() != 2 || g.GetManager() != "" {
		t.Errorf("the group is %v", g)
	}
}

// TestDeleteRefused: a deletion that the shard refuses is retried.
func TestDeleteRefused(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	f.shards.Shard("a").Fail("DeleteGroup", status.Error(codes.FailedPrecondition, "groups can't be read"), -1)
	f.delete(o)
	f.awaitCondition(o, v1beta1.ConditionConfigValid, metav1.ConditionFalse, "Refused")
	f.shards.Shard("a").Fail("DeleteGroup", nil, 0)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "Deleting")
	f.eventually("the group is deleted", func() error {
		if g := f.shards.Shard("a").Group("web"); g.GetSize() != 0 {
			return fmt.Errorf("the group is %v", g)
		}
		return nil
	})
	f.shards.Shard("a").KillAll("web")
	f.awaitGone(o)
}

// TestDeleteForMoveKeepsGroup: after clusterctl move has deleted an object, its group belongs
// to another management cluster, and is not deleted, even if no paused Cluster is found any
// more.
func TestDeleteForMoveKeepsGroup(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	f.edit(o, func(o *v1beta1.NstanceShardGroup) {
		o.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
	})
	f.delete(o)
	f.awaitCondition(o, v1beta1.ConditionPaused, metav1.ConditionTrue, "Paused")
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Finalizers = nil })
	f.awaitGone(o)
	if all := f.deletes("a"); len(all) > 0 || f.shards.Shard("a").Group("web").GetSize() != 2 {
		t.Errorf("deleted %v", all)
	}
}

// TestDetach: the deletion of a self-hosted operator's Cluster deletes no group.
func TestDetach(t *testing.T) {
	f := newFixture(t, "a")
	f.selfHosted = true
	c := f.createCluster()
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	f.must(f.client.Delete(t.Context(), c)) // kept by a finalizer
	shared.Plane(t).Cached(t, f.cached, c)
	f.delete(o)
	f.awaitGone(o)
	f.awaitEvent(o, "Detached")
	if g := f.shards.Shard("a").Group("web"); len(f.deletes("a")) > 0 || g.GetSize() != 2 || g.GetManager() != "" {
		t.Errorf("deleted %v, the group is %v", f.deletes("a"), g)
	}
	f.must(f.get(c))
	c.Finalizers = nil
	f.must(f.client.Update(t.Context(), c))
	f.awaitGone(c)
	f.removeGroup("a", "web")
	o = f.createReady("a", dynamicGroup(2)) // now without a Cluster
	f.delete(o)
	f.awaitGone(o)
	if all := f.deletes("a"); len(all) > 0 {
		t.Errorf("deleted %v", all)
	}
}

// TestDetachWithStaleCluster: the deletion of a group is noticed before that of its Cluster, from
// which it follows.
func TestDetachWithStaleCluster(t *testing.T) {
	f := newFixture(t, "a")
	f.selfHosted = true
	c := f.createCluster()
	f.intercept = func(api client.WithWatch) client.Client {
		return interceptor.NewClient(api, interceptor.Funcs{Get: func(
			ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			if cached, ok := o.(*clusterv1.Cluster); ok {
				c.DeepCopyInto(cached)
				return nil
			}
			return api.Get(ctx, key, o, opts...)
		}})
	}
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	f.must(f.client.Delete(t.Context(), c.DeepCopy())) // a finalizer holds it
	f.delete(o)
	f.awaitGone(o)
	f.awaitEvent(o, "Detached")
	if all := f.deletes("a"); len(all) > 0 || f.shards.Shard("a").Group("web").GetSize() != 2 {
		t.Errorf("deleted %v", all)
	}
}

// TestPushWaitsForCluster: changes that were made without a Cluster are pushed once it exists.
func TestPushWaitsForCluster(t *testing.T) {
	f := newFixture(t, "a")
	f.selfHosted = true
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(3)) })
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotSynced")
	if all := f.upserts("a"); len(all) > 0 {
		t.Errorf("pushed %v", all)
	}
	f.createCluster()
	f.eventually("it is pushed", func() error {
		if g := f.shards.Shard("a").Group("web"); g.GetSize() != 3 {
			return fmt.Errorf("the group is %v", g)
		}
		return nil
	})
}

// TestDeleteWithoutShard: the object waits for an unreachable shard. Once the shard is no
// longer configured, the object is released, and an event says that the group may still exist.
func TestDeleteWithoutShard(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	f.shards.Shard("a").Stop()
	f.shards.Heard()
	f.delete(o)
	f.awaitCondition(o, v1beta1.ConditionShardReachable, metav1.ConditionFalse, "ShardUnreachable")
	if all := f.deletes("a"); len(all) > 0 || len(o.Finalizers) == 0 {
		t.Errorf("deleted %v, finalizers %v", all, o.Finalizers)
	}
	f.shards.Configure("b")
	f.awaitGone(o)
	f.awaitEvent(o, "ShardNotConfigured")
}

// TestShardUnreachable: its groups have the condition once the shard has been unreachable for
// some time. Their status is kept, and changes made meanwhile are pushed when the shard is
// back.
func TestShardUnreachable(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", staticGroup(2))
	f.shards.Shard("a").NoRoom(true)
	began := time.Now()
	f.shards.Shard("a").Stop()
	f.shards.Heard()
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(3)) })
	f.awaitCondition(o, v1beta1.ConditionShardReachable, metav1.ConditionFalse, "ShardUnreachable")
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("the condition was set after only %v", d)
	}
	f.awaitEvent(o, "ShardUnreachable")
	if *o.Status.Config.Size != 2 || *o.Status.ActualSize != 2 || len(f.upserts("a")) > 0 {
		t.Errorf("status %+v, pushed %v", o.Status, f.upserts("a"))
	}
	f.shards.Shard("a").Start()
	f.awaitCondition(o, v1beta1.ConditionShardReachable, metav1.ConditionTrue, "Reachable")
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	if all := f.upserts("a"); len(all) != 1 || all[0].GetSize() != 3 {
		t.Errorf("pushed %v", all)
	}
}

// TestNoActionBeforeSnapshot: no condition is set and no call is made before a shard's snapshot
// is complete.
func TestNoActionBeforeSnapshot(t *testing.T) {
	f := newFixtureOn(t, slowShards(t, "a", "b"))
	f.shards.Shard("a").Hang()
	f.shards.Run()
	o, other := f.object("web", "a", 2), f.object("web", "b", 2)
	o.Spec.Template, other.Spec.Template = "knd", "knd"
	f.create(o)
	f.start()
	f.create(other)
	f.awaitCondition(other, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	f.must(f.get(o))
	if len(o.Status.Conditions) > 0 || len(f.upserts("a")) > 0 {
		t.Errorf("status %+v, pushed %v", o.Status, f.upserts("a"))
	}
	f.shards.Shard("a").Unhang()
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
}

// TestCreatesFailing: the condition's message contains the provider's error without counts and
// times, which keep changing, so that it is written once.
func TestCreatesFailing(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", staticGroup(2))
	a := f.shards.Shard("a")
	a.NoRoom(true)
	a.Kill(a.Group("web").GetInstances()[0].GetId())
	failCreate := func(id string, n int) {
		a.SetCondition("web", "CreatesFailing", true, "QuotaUsedUp",
			fmt.Sprintf("create %s: no more vCPU (account) (%d creates failed since 10:00, the next is due at 11:00)", id, n))
		f.shards.Heard()
	}
	failCreate(instance, 1)
	f.awaitCondition(o, v1beta1.ConditionCreatesFailing, metav1.ConditionTrue, "QuotaUsedUp")
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "QuotaUsedUp")
	for _, c := range o.Status.Conditions {
		if c.Type == v1beta1.ConditionCreatesFailing && c.Message != "create "+instance+": no more vCPU (account)" {
			t.Errorf("message %q", c.Message)
		}
	}
	before := o.ResourceVersion
	failCreate("knd01hf7yat00e00r0000000000g2", 2)
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Annotations = map[string]string{"test/seen": ""} })
	changed := o.ResourceVersion
	failCreate("knd01hf7yat00e00r0000000000g4", 3)
	other := f.object("other", "a", 0)
	other.Spec.Template = "knd"
	f.create(other)
	f.awaitCondition(other, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if f.must(f.get(o)); o.ResourceVersion != changed || before == changed {
		t.Errorf("written again: %+v", o.Status)
	}
}

// TestDeleteAfterCallWithUnknownOutcome: a group that does not exist may still be created by a
// call whose outcome is unknown. The shard is called once to delete it before the object is
// released.
func TestDeleteAfterCallWithUnknownOutcome(t *testing.T) {
	f := newFixtureOn(t, slowShards(t, "a"))
	f.shards.Run()
	f.shards.Synced()
	f.start()
	a := f.shards.Shard("a")
	a.Fail("UpsertGroup", status.Error(codes.Unknown, "no leader answered in time"), -1)
	a.Hang()
	o := f.object("web", "a", 3)
	o.Spec.Template = "knd"
	f.create(o)
	f.eventually("the group is pushed", func() error {
		if len(f.upserts("a")) == 0 {
			return errors.New("no call")
		}
		return nil
	})
	f.delete(o)
	a.Unhang()
	f.awaitGone(o)
	if all := f.deletes("a"); !slices.Equal(all, []string{"web"}) {
		t.Errorf("deleted %v, want one call", all)
	}
}

// TestDeleteWithUnknownOutcome: the object of a group that does not exist stays while the
// outcome of the group's deletion is unknown.
func TestDeleteWithUnknownOutcome(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	f.shards.Shard("a").Fail("DeleteGroup", status.Error(codes.DeadlineExceeded, "no response"), -1)
	f.removeGroup("a", "web")
	f.delete(o)
	f.eventually("its deletion is requested", func() error {
		if len(f.deletes("a")) == 0 {
			return errors.New("no call")
		}
		return nil
	})
	if f.must(f.get(o)); len(o.Finalizers) == 0 {
		t.Error("the object was released")
	}
	f.shards.Shard("a").Fail("DeleteGroup", nil, 0)
	f.awaitGone(o)
}
