package pool_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func instanceIDs(ids ...string) (all []v1beta1.InstanceID) {
	for _, id := range ids {
		all = append(all, v1beta1.InstanceID(id))
	}
	return all
}

func (s *stage) part(name string) *v1beta1.NstanceShardGroup {
	s.t.Helper()
	var g v1beta1.NstanceShardGroup
	s.must(s.api.Get(s.t.Context(), s.key(name), &g))
	return &g
}

// node makes the Node of an instance.
func (s *stage) node(id string, taints ...corev1.Taint) {
	s.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: corev1.NodeSpec{ProviderID: "process:///" + id, Taints: taints}}
	s.must(s.api.Create(s.t.Context(), n))
	s.t.Cleanup(func() { _ = s.api.Delete(context.Background(), n) })
}

// stays holds that a list does not change for a while.
func (s *stage) stays(name string, want []string) {
	s.t.Helper()
	planetest.Consistently(s.t, time.Second, "the list stays", func(context.Context) error {
		if got := s.get(name).Spec.ProviderIDList; !slices.Equal(got, want) {
			return fmt.Errorf("it is %v, want %v", got, want)
		}
		return nil
	})
}

func TestIDsStayWhileTheirShardIsLost(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 4, "a", "b")
	s.settled("web", []string{"a", "b"}, 2, 2)
	all := s.providerIDs("web", "a", "b")
	s.listed("web", all)
	s.world.Shard("b").Stop()
	s.stays("web", all)

	// The operator begins anew and knows nothing of b.
	s.stop()
	s.forget("b", "a", "b")
	s.run(s.world)
	s.scale("web", 6) // it is at work
	s.settled("web", []string{"a"}, 3)
	all = s.providerIDs("web", "a", "b")
	s.listed("web", all)
	s.stays("web", all)

	s.world.Shard("b").Start()
	s.settled("web", []string{"a", "b"}, 3, 3)
	s.listed("web", s.providerIDs("web", "a", "b"))
}

// What died while nobody was connected leaves once the shard has told everything.
func TestIDsThatWentUnseenLeaveWithEvidence(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 4, "a", "b")
	s.settled("web", []string{"a", "b"}, 2, 2)
	s.listed("web", s.providerIDs("web", "a", "b"))
	s.stop()
	s.must(s.world.Set.DeleteInstance(t.Context(), "b", s.living("b", "web")[0]))
	s.world.Shard("b").SetTiming(func(timing *shardstest.Timing) { timing.Tombstone = 0 })
	s.settled("web", []string{"a", "b"}, 2, 2)
	s.world.Configure("a")
	s.world.Configure("a", "b")
	s.run(s.world)
	s.listed("web", s.providerIDs("web", "a", "b"))
}

// Without a word about its shard an id waits for all of them.
func TestAnIDOfNoKnownShardWaitsForAll(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 2, "a", "b")
	s.settled("web", []string{"a", "b"}, 1, 1)
	living := s.providerIDs("web", "a", "b")
	s.listed("web", living)
	s.world.Shard("b").Stop()
	s.eventually("b is lost", func() error {
		if state, _ := s.world.Set.State("b"); state.Synced {
			return fmt.Errorf("it is synced")
		}
		return nil
	})
	odd := slices.Sorted(slices.Values(append(living, "process:///of-nobody")))
	s.patch(s.get("web"), fmt.Sprintf(`{"spec":{"providerIDList":["%s"]}}`, strings.Join(odd, `","`)))
	s.stays("web", odd)
	s.world.Shard("b").Start()
	s.listed("web", living)
}

// Another operator, started by mistake, knows of an instance that the stream here has
// not told yet, and writes its id into the list. Its Node must not go.
func TestAnIDThatTheStreamIsYetToTellStays(t *testing.T) {
	s := newStage(t, "a")
	s.doubt = time.Minute
	s.run(s.world)
	s.pool("web", 1, "a")
	s.settled("web", []string{"a"}, 1)
	s.listed("web", s.providerIDs("web", "a"))
	shard := s.world.Shard("a")
	shard.Mute()
	_, err := shard.Service().UpsertGroup(t.Context(), &nstancev1.UpsertGroupRequest{Key: "web", Size: new(int32(2))})
	s.must(err)
	both := s.providerIDs("web", "a")
	if len(both) != 2 {
		t.Fatalf("the shard has %v", both)
	}
	s.patch(s.get("web"), fmt.Sprintf(`{"spec":{"providerIDList":["%s"]}}`, strings.Join(both, `","`)))
	s.stays("web", both)
}

// A pool that was made anew, without list and status, goes on with what core has: core
// would delete the nodes of the shard that is lost just now.
func TestAPoolMadeAnewKeepsWhatCoreKnows(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 4, "a", "b")
	s.settled("web", []string{"a", "b"}, 2, 2)
	all := s.providerIDs("web", "a", "b")
	s.listed("web", all)
	s.stop()
	s.forget("b", "a", "b")

	old := s.get("web")
	s.patch(old, `{"metadata":{"finalizers":null}}`)
	s.must(s.api.Delete(t.Context(), old))
	anew := &v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: old.Spec}
	anew.Spec.ProviderIDList = nil
	s.create(anew)
	s.parents(old.UID, anew)
	s.run(s.world)
	s.listed("web", all)
	s.stays("web", all)
	s.world.Shard("b").Start()
	s.listed("web", all)
	s.settled("web", []string{"a", "b"}, 2, 2)
}

// Restored without its parts and machines a pool keeps what its shards tell of, and
// makes the others anew.
func TestAPoolWithoutItsPartsLosesNoID(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 4, "a", "b")
	s.settled("web", []string{"a", "b"}, 2, 2)
	all := s.providerIDs("web", "a", "b")
	s.listed("web", all)
	s.machines("web", 4)
	s.stop()
	for _, list := range []client.ObjectList{&v1beta1.NstanceShardGroupList{}, &v1beta1.NstanceMachineList{}, &clusterv1.MachineList{}} {
		s.must(s.api.List(t.Context(), list, client.InNamespace(s.ns)))
		items, err := meta.ExtractList(list)
		s.must(err)
		for _, item := range items {
			o := item.(client.Object)
			s.patch(o, `{"metadata":{"finalizers":null}}`)
			s.must(s.api.Delete(t.Context(), o))
		}
	}
	seen := s.watch("web")
	s.run(s.world)
	s.machines("web", 4)
	s.settled("web", []string{"a", "b"}, 2, 2)
	s.listed("web", all)
	for _, list := range seen() {
		if !slices.Equal(list, all) {
			t.Errorf("the list was %v, want %v", list, all)
		}
	}
}

// watch records what a list is, from now on until the answer is asked for.
func (s *stage) watch(name string) func() [][]string {
	s.t.Helper()
	c, err := client.NewWithWatch(s.plane.Config, client.Options{Scheme: s.api.Scheme()})
	s.must(err)
	w, err := c.Watch(s.t.Context(), &v1beta1.NstanceMachinePoolList{}, client.InNamespace(s.ns),
		client.MatchingFields{"metadata.name": name})
	s.must(err)
	var all [][]string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*v1beta1.NstanceMachinePool); ok {
				all = append(all, p.Spec.ProviderIDList)
			}
		}
	}()
	return func() [][]string { w.Stop(); <-done; return all }
}

// parents has the parts of one pool belong to another, as a backup's restore does.
func (s *stage) parents(old types.UID, now *v1beta1.NstanceMachinePool) {
	s.t.Helper()
	for _, name := range []string{"web--a", "web--b"} {
		g := s.part(name)
		for i := range g.OwnerReferences {
			if g.OwnerReferences[i].UID == old {
				g.OwnerReferences[i].UID = now.UID
			}
		}
		s.must(s.api.Update(s.t.Context(), g))
	}
}
