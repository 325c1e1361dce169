package pool_test

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

func TestReplicasAreSpreadEvenly(t *testing.T) {
	f := startFixture(t, "a", "b")
	ab := []string{"a", "b"}
	f.pool("web", 5, "a", "b")
	f.awaitSizes("web", ab, 3, 2)
	f.scale("web", 7)
	f.awaitSizes("web", ab, 4, 3)
	f.scale("web", 3)
	f.awaitSizes("web", ab, 2, 1)
	f.scale("web", 0)
	f.awaitSizes("web", ab, 0, 0)

	var g v1beta1.NstanceShardGroup
	f.must(f.api.Get(t.Context(), f.key("web--b"), &g))
	if !metav1.IsControlledBy(&g, f.get("web")) || g.Labels[v1beta1.LabelGroup] != "web" || g.Labels[v1beta1.LabelShard] != "b" ||
		g.Labels[clusterv1.ClusterNameLabel] != clusterName || g.Spec.Template != "knd" {
		t.Errorf("the part on b: %+v", g)
	}
}

func TestPartFollowsPoolSpec(t *testing.T) {
	f := startFixture(t, "a")
	f.pool("web", 1, "a")
	f.awaitSizes("web", []string{"a"}, 1)
	f.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		`{"spec":{"instanceType":"large","subnetPool":"private","vars":{"n":1.50,"o":{"b":1,"a":[2]}},"rotation":{"maxSurge":"10%"}}}`)
	f.eventually("the part has the pool's spec", func() error {
		var g v1beta1.NstanceShardGroup
		f.must(f.api.Get(t.Context(), f.key("web--a"), &g))
		if g.Spec.InstanceType != "large" || g.Spec.SubnetPool != "private" || len(g.Spec.Vars) != 2 ||
			g.Spec.Rotation.MaxSurge.String() != "10%" || *g.Spec.Size != 1 {
			return fmt.Errorf("it is %+v", g.Spec)
		}
		return nil
	})
}

// A pool adopts the shards' existing sizes: no instance moves to another shard.
func TestExistingGroupsKeepTheirSizes(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.shards.Shard("a").AddGroup("web", 1, "knd")
	f.shards.Shard("b").AddGroup("web", 5, "knd")
	f.shards.Synced()
	f.runOperator(f.shards)
	f.pool("web", 6, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 1, 5)
	f.scale("web", 8)
	f.awaitSizes("web", []string{"a", "b"}, 3, 5)
}

// A shard in an unknown state is assumed to hold its equal share, in whatever order the shards
// become known.
func TestUnknownShardGetsItsShareLater(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.shards.Shard("b").AddGroup("web", 4, "knd")
	f.makeUnknown("b", "a", "b")
	f.runOperator(f.shards)
	f.pool("web", 6, "a", "b")
	f.awaitSizes("web", []string{"a"}, 3)
	f.eventually("the pool waits for the unknown shard", func() error {
		c := meta.FindStatusCondition(f.get("web").Status.Conditions, v1beta1.ConditionReady)
		if c == nil || c.Reason != "ShardsUnknown" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if got := f.sizes("web", "b"); got[0] != -1 {
		t.Fatalf("a part of size %d was created for an unknown shard", got[0])
	}
	f.shards.Shard("b").Start()
	f.awaitSizes("web", []string{"a", "b"}, 3, 3)
}

func TestFailureDomainsSelectShards(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 4, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	mp := func() *clusterv1.MachinePool {
		return &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	}
	f.patch(mp(), `{"spec":{"failureDomains":["b"],"replicas":6}}`)
	f.awaitSizes("web", []string{"a", "b"}, 2, 4)
	f.patch(mp(), `{"spec":{"replicas":5}}`)
	f.awaitSizes("web", []string{"a", "b"}, 1, 4)
	f.patch(mp(), `{"spec":{"failureDomains":["nowhere"],"replicas":9}}`)
	f.eventually("the pool reports NoShard", func() error {
		if c := meta.FindStatusCondition(f.get("web").Status.Conditions, v1beta1.ConditionReady); c == nil || c.Reason != "NoShard" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	f.awaitSizes("web", []string{"a", "b"}, 1, 4)
}

// A shard that is removed from the pool is scaled to zero before its part is deleted.
func TestRemovedShardIsScaledDownFirst(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 4, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	f.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, `{"spec":{"shards":["a"]}}`)
	f.scale("web", 5)
	f.awaitSizes("web", []string{"a", "b"}, 3, 2)
	f.scale("web", 3)
	f.awaitSizes("web", []string{"a", "b"}, 3, -1)
	if g := f.shards.Shard("b").Group("web"); g != nil {
		f.eventually("the group is gone from shard b", func() error {
			if g := f.shards.Shard("b").Group("web"); g != nil {
				return fmt.Errorf("it has size %d", g.GetSize())
			}
			return nil
		})
	}
}

// An unreachable shard does not delay another, and gets its share when it is back.
func TestUnreachableShardCatchesUp(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 4, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	f.shards.Shard("b").Stop()
	f.scale("web", 8)
	f.awaitSizes("web", []string{"a"}, 4)
	f.eventually("the pool reports the unreachable shard", func() error {
		c := meta.FindStatusCondition(f.get("web").Status.Conditions, v1beta1.ConditionShardReachable)
		if c == nil || c.Status != metav1.ConditionFalse || c.Message != "unreachable shards: b" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	f.shards.Shard("b").Start()
	f.awaitSizes("web", []string{"a", "b"}, 4, 4)
	f.awaitProviderIDs("web", f.providerIDs("web", "a", "b"))
}

func TestGroupOfAnotherPoolIsNotTaken(t *testing.T) {
	f := startFixture(t, "a")
	f.pool("web", 2, "a")
	f.awaitSizes("web", []string{"a"}, 2)
	f.create(&v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: "second"},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}, Template: "knd"},
	})
	f.create(machinePool("second", 7))
	f.eventually("the second pool reports GroupTaken", func() error {
		if c := meta.FindStatusCondition(f.get("second").Status.Conditions, v1beta1.ConditionReady); c == nil || c.Reason != "GroupTaken" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if p := f.get("second"); len(p.Spec.ProviderIDList) > 0 || p.Status.Ready != nil {
		t.Errorf("the second pool lists %v", p.Spec.ProviderIDList)
	}
	f.must(f.api.Delete(t.Context(), f.get("second")))
	f.eventually("the second pool is gone", func() error {
		err := f.api.Get(t.Context(), f.key("second"), &v1beta1.NstanceMachinePool{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %w", err)
		}
		return nil
	})
	f.awaitSizes("web", []string{"a"}, 2)
}
