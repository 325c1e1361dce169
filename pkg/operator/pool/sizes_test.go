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

func TestReplicasAreSharedAndThenLevelled(t *testing.T) {
	s := start(t, "a", "b")
	ab := []string{"a", "b"}
	s.pool("web", 5, "a", "b")
	s.settled("web", ab, 3, 2)
	s.scale("web", 7)
	s.settled("web", ab, 4, 3)
	s.scale("web", 3)
	s.settled("web", ab, 2, 1)
	s.scale("web", 0)
	s.settled("web", ab, 0, 0)

	var g v1beta1.NstanceShardGroup
	s.must(s.api.Get(t.Context(), s.key("web--b"), &g))
	if !metav1.IsControlledBy(&g, s.get("web")) || g.Labels[v1beta1.LabelGroup] != "web" || g.Labels[v1beta1.LabelShard] != "b" ||
		g.Labels[clusterv1.ClusterNameLabel] != clusterName || g.Spec.Template != "knd" {
		t.Errorf("the part on b: %+v", g)
	}
}

func TestAPartFollowsItsPool(t *testing.T) {
	s := start(t, "a")
	s.pool("web", 1, "a")
	s.settled("web", []string{"a"}, 1)
	s.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		`{"spec":{"instanceType":"large","subnetPool":"private","vars":{"n":1.50,"o":{"b":1,"a":[2]}},"rotation":{"maxSurge":"10%"}}}`)
	s.eventually("the part is like its pool", func() error {
		var g v1beta1.NstanceShardGroup
		s.must(s.api.Get(t.Context(), s.key("web--a"), &g))
		if g.Spec.InstanceType != "large" || g.Spec.SubnetPool != "private" || len(g.Spec.Vars) != 2 ||
			g.Spec.Rotation.MaxSurge.String() != "10%" || *g.Spec.Size != 1 {
			return fmt.Errorf("it is %+v", g.Spec)
		}
		return nil
	})
}

// What a shard has already is where a pool begins: nothing moves.
func TestAGroupThatIsThereKeepsItsSize(t *testing.T) {
	s := newStage(t, "a", "b")
	s.world.Shard("a").AddGroup("web", 1, "knd")
	s.world.Shard("b").AddGroup("web", 5, "knd")
	s.world.Synced()
	s.run(s.world)
	s.pool("web", 6, "a", "b")
	s.settled("web", []string{"a", "b"}, 1, 5)
	s.scale("web", 8)
	s.settled("web", []string{"a", "b"}, 3, 5)
}

// A shard of which nothing is known holds its equal share, whoever else begins.
func TestAnUnknownShardIsWaitedFor(t *testing.T) {
	s := newStage(t, "a", "b")
	s.world.Shard("b").AddGroup("web", 4, "knd")
	s.forget("b", "a", "b")
	s.run(s.world)
	s.pool("web", 6, "a", "b")
	s.settled("web", []string{"a"}, 3)
	s.eventually("the pool says what it waits for", func() error {
		c := meta.FindStatusCondition(s.get("web").Status.Conditions, v1beta1.ConditionReady)
		if c == nil || c.Reason != "ShardsUnknown" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if got := s.sizes("web", "b"); got[0] != -1 {
		t.Fatalf("a part of size %d was made for a shard that nobody knows", got[0])
	}
	s.world.Shard("b").Start()
	s.settled("web", []string{"a", "b"}, 3, 3)
}

func TestFailureDomainsSelectShards(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 4, "a", "b")
	s.settled("web", []string{"a", "b"}, 2, 2)
	mp := func() *clusterv1.MachinePool {
		return &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	}
	s.patch(mp(), `{"spec":{"failureDomains":["b"],"replicas":6}}`)
	s.settled("web", []string{"a", "b"}, 2, 4)
	s.patch(mp(), `{"spec":{"replicas":5}}`)
	s.settled("web", []string{"a", "b"}, 1, 4)
	s.patch(mp(), `{"spec":{"failureDomains":["nowhere"],"replicas":9}}`)
	s.eventually("the pool says that there is no shard", func() error {
		if c := meta.FindStatusCondition(s.get("web").Status.Conditions, v1beta1.ConditionReady); c == nil || c.Reason != "NoShard" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	s.settled("web", []string{"a", "b"}, 1, 4)
}

// A shard that the pool names no more is emptied only by shrinking, and then let go.
func TestAShardThatIsNamedNoMore(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 4, "a", "b")
	s.settled("web", []string{"a", "b"}, 2, 2)
	s.patch(&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, `{"spec":{"shards":["a"]}}`)
	s.scale("web", 5)
	s.settled("web", []string{"a", "b"}, 3, 2)
	s.scale("web", 3)
	s.settled("web", []string{"a", "b"}, 3, -1)
	if g := s.world.Shard("b").Group("web"); g != nil {
		s.eventually("the group leaves shard b", func() error {
			if g := s.world.Shard("b").Group("web"); g != nil {
				return fmt.Errorf("it has %d", g.GetSize())
			}
			return nil
		})
	}
}

// One dead shard does not hold up another, and gets its share when it is back.
func TestADeadShardIsCountedAndCatchesUp(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 4, "a", "b")
	s.settled("web", []string{"a", "b"}, 2, 2)
	s.world.Shard("b").Stop()
	s.scale("web", 8)
	s.settled("web", []string{"a"}, 4)
	s.eventually("the pool says which shard is lost", func() error {
		c := meta.FindStatusCondition(s.get("web").Status.Conditions, v1beta1.ConditionShardReachable)
		if c == nil || c.Status != metav1.ConditionFalse || c.Message != "shards that can't be reached: b" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	s.world.Shard("b").Start()
	s.settled("web", []string{"a", "b"}, 4, 4)
	s.listed("web", s.providerIDs("web", "a", "b"))
}

func TestAGroupOfAnotherPoolIsLeftAlone(t *testing.T) {
	s := start(t, "a")
	s.pool("web", 2, "a")
	s.settled("web", []string{"a"}, 2)
	s.create(&v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: "thief"},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}, Template: "knd"},
	})
	s.create(machinePool("thief", 7))
	s.eventually("the second pool says so", func() error {
		if c := meta.FindStatusCondition(s.get("thief").Status.Conditions, v1beta1.ConditionReady); c == nil || c.Reason != "GroupTaken" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if p := s.get("thief"); len(p.Spec.ProviderIDList) > 0 || p.Status.Ready != nil {
		t.Errorf("it has taken %v", p.Spec.ProviderIDList)
	}
	s.must(s.api.Delete(t.Context(), s.get("thief")))
	s.eventually("the second pool is gone", func() error {
		err := s.api.Get(t.Context(), s.key("thief"), &v1beta1.NstanceMachinePool{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	s.settled("web", []string{"a"}, 2)
}
