package shardgroup_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// settled is an object whose group is as it is wanted.
func (s *site) settled(shard string, g *nstancev1.GroupStatus) *v1beta1.NstanceShardGroup {
	s.t.Helper()
	s.has(shard, g)
	o := s.object(g.GetKey(), shard, g.GetSize())
	s.create(o)
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	return o
}

func (s *site) delete(o *v1beta1.NstanceShardGroup) {
	s.t.Helper()
	s.must(s.client.Delete(s.t.Context(), o))
}

func dynamic(size int32) *nstancev1.GroupStatus {
	g := web(size)
	g.IsStatic, g.StaticSize = false, 0
	return g
}

// TestDelete: the group is deleted at its shard, once, and the object stays until it is
// gone there.
func TestDelete(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.settled("a", dynamic(2))
	s.delete(o)
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "Deleting")
	for range 20 {
		s.shards.change("a", func(*shardState) {})
	}
	s.shards.drop("a", "web")
	s.awaitsGone(o)
	if all := s.shards.deletes("a"); !slices.Equal(all, []string{"web"}) {
		t.Errorf("deleted %v", all)
	}
}

// TestDeleteOfAStaticGroup: the shard refuses, an event says why, and the object goes.
func TestDeleteOfAStaticGroup(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.settled("a", web(2))
	s.delete(o)
	s.awaitsGone(o)
	s.awaitsEvent(o, "GroupIsStatic")
	if g := s.shards.Group("a", "web"); g.GetSize() != 2 {
		t.Errorf("the group is %v", g)
	}
}

// TestDeleteRefused: a group that can't be deleted now is not given up.
func TestDeleteRefused(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.settled("a", dynamic(2))
	s.shards.change("a", func(x *shardState) { x.refuses = status.Error(codes.FailedPrecondition, "groups can't be read") })
	s.delete(o)
	s.awaits(o, v1beta1.ConditionConfigValid, metav1.ConditionFalse, "Refused")
	s.shards.change("a", func(x *shardState) { x.refuses = nil })
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "Deleting")
	s.eventually("it is deleted", func() error {
		if g := s.shards.Group("a", "web"); g.GetSize() != 0 {
			return fmt.Errorf("the group is %v", g)
		}
		return nil
	})
	s.shards.drop("a", "web")
	s.awaitsGone(o)
}

// TestMovedAway: what clusterctl deletes lives on in another management cluster, and so
// does its group, though no Cluster is seen any more that is paused.
func TestMovedAway(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.settled("a", dynamic(2))
	s.edit(o, func(o *v1beta1.NstanceShardGroup) {
		o.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
	})
	s.delete(o)
	s.awaits(o, v1beta1.ConditionPaused, metav1.ConditionTrue, "Paused")
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Finalizers = nil })
	s.awaitsGone(o)
	if all := s.shards.deletes("a"); len(all) > 0 || s.shards.Group("a", "web").GetSize() != 2 {
		t.Errorf("deleted %v", all)
	}
}

// TestDetach: with the Cluster of a self-hosted operator no group is deleted.
func TestDetach(t *testing.T) {
	s := newSite(t, "a")
	s.selfhost = true
	c := s.cluster()
	s.start()
	o := s.settled("a", dynamic(2))
	s.must(s.client.Delete(t.Context(), c)) // a finalizer holds it
	s.delete(o)
	s.awaitsGone(o)
	s.awaitsEvent(o, "Detached")
	if all := s.shards.deletes("a"); len(all) > 0 || s.shards.Group("a", "web").GetSize() != 2 {
		t.Errorf("deleted %v", all)
	}
	s.must(s.get(c))
	c.Finalizers = nil
	s.must(s.client.Update(t.Context(), c))
	s.awaitsGone(c)
	s.shards.drop("a", "web")
	o = s.settled("a", dynamic(2)) // there is no Cluster any more
	s.delete(o)
	s.awaitsGone(o)
	if all := s.shards.deletes("a"); len(all) > 0 {
		t.Errorf("deleted %v", all)
	}
}

// TestALateCluster: what was asked for while there was no Cluster is pushed when it comes.
func TestALateCluster(t *testing.T) {
	s := newSite(t, "a")
	s.selfhost = true
	s.start()
	o := s.settled("a", dynamic(2))
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(3)) })
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotSynced")
	if all := s.shards.upserts("a"); len(all) > 0 {
		t.Errorf("pushed %v", all)
	}
	s.cluster()
	s.eventually("it is pushed", func() error {
		if g := s.shards.Group("a", "web"); g.GetSize() != 3 {
			return fmt.Errorf("the group is %v", g)
		}
		return nil
	})
}

// TestDeleteWithoutShard: while the shard does not answer the object waits; when the
// config has no such shard any more, it goes, and an event says that the group may live.
func TestDeleteWithoutShard(t *testing.T) {
	s := newSite(t, "a", "b")
	s.start()
	o := s.settled("a", dynamic(2))
	s.shards.change("a", func(x *shardState) { x.state.Reachable, x.state.Synced = false, false })
	s.delete(o)
	s.awaits(o, v1beta1.ConditionShardReachable, metav1.ConditionFalse, "ShardUnreachable")
	if all := s.shards.deletes("a"); len(all) > 0 || len(o.Finalizers) == 0 {
		t.Errorf("deleted %v, held by %v", all, o.Finalizers)
	}
	s.shards.forget("a")
	s.awaitsGone(o)
	s.awaitsEvent(o, "ShardNotConfigured")
}

// TestShardUnreachable: its groups say so, once it has been silent for some time; what
// was known of them stays, and what changed meanwhile is pushed when it is back.
func TestShardUnreachable(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.settled("a", web(2))
	s.shards.change("a", func(x *shardState) {
		x.state.Reachable, x.state.Synced, x.state.Since, x.state.Err = false, false, time.Now(), errors.New("no answer")
	})
	began := time.Now()
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(3)) })
	s.awaits(o, v1beta1.ConditionShardReachable, metav1.ConditionFalse, "ShardUnreachable")
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("it was silent for %v only", d)
	}
	s.awaitsEvent(o, "ShardUnreachable")
	if *o.Status.Config.Size != 2 || *o.Status.ActualSize != 2 || len(s.shards.upserts("a")) > 0 {
		t.Errorf("status %+v, pushed %v", o.Status, s.shards.upserts("a"))
	}
	s.shards.change("a", func(x *shardState) { x.state.Reachable, x.state.Synced = true, true })
	s.awaits(o, v1beta1.ConditionShardReachable, metav1.ConditionTrue, "Reachable")
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	if all := s.shards.upserts("a"); len(all) != 1 || all[0].GetSize() != 3 {
		t.Errorf("pushed %v", all)
	}
}

// TestNotYetHeard: nothing is said or done before a shard has told all it has.
func TestNotYetHeard(t *testing.T) {
	s := newSite(t, "a", "b")
	s.shards.change("a", func(x *shardState) { x.state.Reachable, x.state.Known, x.state.Synced = false, false, false })
	o, other := s.object("web", "a", 2), s.object("web", "b", 2)
	o.Spec.Template, other.Spec.Template = "knd", "knd"
	s.create(o)
	s.start()
	s.create(other)
	s.awaits(other, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	s.must(s.get(o))
	if len(o.Status.Conditions) > 0 || len(s.shards.upserts("a")) > 0 {
		t.Errorf("status %+v, pushed %v", o.Status, s.shards.upserts("a"))
	}
	s.shards.change("a", func(x *shardState) { x.state.Reachable, x.state.Known, x.state.Synced = true, true, true })
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
}

// TestCreatesFailing: the condition holds the provider's words and not what goes on
// changing, so it is written once.
func TestCreatesFailing(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.settled("a", web(2))
	fails := func(id string, n int) {
		s.shards.change("a", func(x *shardState) {
			x.groups["web"].ActualSize = 1
			x.groups["web"].Conditions = []*nstancev1.Condition{{Type: "CreatesFailing", Status: true, Reason: "QuotaUsedUp",
				Message: fmt.Sprintf("create %s: no more vCPU (account) (%d creates failed since 10:00, the next is due at 11:00)", id, n)}}
		})
	}
	fails(instance, 1)
	s.awaits(o, v1beta1.ConditionCreatesFailing, metav1.ConditionTrue, "QuotaUsedUp")
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "QuotaUsedUp")
	for _, c := range o.Status.Conditions {
		if c.Type == v1beta1.ConditionCreatesFailing && c.Message != "create "+instance+": no more vCPU (account)" {
			t.Errorf("it says %q", c.Message)
		}
	}
	before := o.ResourceVersion
	fails("knd01hf7yat00e00r0000000000g2", 2)
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Annotations = map[string]string{"test/seen": ""} })
	changed := o.ResourceVersion
	fails("knd01hf7yat00e00r0000000000g4", 3)
	other := s.object("other", "a", 0)
	other.Spec.Template = "knd"
	s.create(other)
	s.awaits(other, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if s.must(s.get(o)); o.ResourceVersion != changed || before == changed {
		t.Errorf("written again: %+v", o.Status)
	}
}

// TestDeleteWhileACallIsInDoubt: a group that is not seen may be about to come, by a call
// whose outcome is unknown. The shard is asked for its deletion, once, before the object
// goes.
func TestDeleteWhileACallIsInDoubt(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	hangs := make(chan struct{})
	s.shards.change("a", func(x *shardState) { x.hangs = hangs })
	o := s.object("web", "a", 3)
	o.Spec.Template = "knd"
	s.create(o)
	s.eventually("the group is asked for", func() error {
		if len(s.shards.upserts("a")) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	s.delete(o)
	s.shards.change("a", func(x *shardState) { x.hangs = nil })
	close(hangs)
	s.awaitsGone(o)
	if all := s.shards.deletes("a"); !slices.Equal(all, []string{"web"}) {
		t.Errorf("deleted %v, want one call", all)
	}
}

// TestDeleteIsNotAnswered: while the answer to the deletion of a group that is not seen is
// open, the object stays.
func TestDeleteIsNotAnswered(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.settled("a", dynamic(2))
	s.shards.change("a", func(x *shardState) {
		x.refuses = status.Error(codes.DeadlineExceeded, "no answer")
		delete(x.groups, "web")
	})
	s.delete(o)
	s.eventually("its deletion is asked for", func() error {
		if len(s.shards.deletes("a")) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	if s.must(s.get(o)); len(o.Finalizers) == 0 {
		t.Error("the object was let go")
	}
	s.shards.change("a", func(x *shardState) { x.refuses = nil })
	s.awaitsGone(o)
}
