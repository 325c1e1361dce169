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

func (f *fixture) part(name string) *v1beta1.NstanceShardGroup {
	f.t.Helper()
	var g v1beta1.NstanceShardGroup
	f.must(f.api.Get(f.t.Context(), f.key(name), &g))
	return &g
}

// node creates the Node of an instance.
func (f *fixture) node(id string, taints ...corev1.Taint) {
	f.t.Helper()
	f.nodeNamed(id, id, taints...)
}

// nodeNamed creates a Node with that name and the provider ID of an instance.
func (f *fixture) nodeNamed(name, id string, taints ...corev1.Taint) {
	f.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "process:///" + id, Taints: taints}}
	f.must(f.api.Create(f.t.Context(), n))
	f.t.Cleanup(func() { _ = f.api.Delete(context.Background(), n) })
}

// listStays checks that a pool's providerIDList does not change for a second.
func (f *fixture) listStays(name string, want []string) {
	f.t.Helper()
	planetest.Consistently(f.t, time.Second, "the providerIDList does not change", func(context.Context) error {
		if got := f.get(name).Spec.ProviderIDList; !slices.Equal(got, want) {
			return fmt.Errorf("it is %v, want %v", got, want)
		}
		return nil
	})
}

func TestProviderIDsStayWhileShardIsUnreachable(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 4, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	all := f.providerIDs("web", "a", "b")
	f.awaitProviderIDs("web", all)
	f.shards.Shard("b").Stop()
	f.listStays("web", all)

	// After a restart, the operator does not know the state of b.
	f.stop()
	f.makeUnknown("b", "a", "b")
	f.runOperator(f.shards)
	f.scale("web", 6) // to see that the operator works
	f.awaitSizes("web", []string{"a"}, 3)
	all = f.providerIDs("web", "a", "b")
	f.awaitProviderIDs("web", all)
	f.listStays("web", all)

	f.shards.Shard("b").Start()
	f.awaitSizes("web", []string{"a", "b"}, 3, 3)
	f.awaitProviderIDs("web", f.providerIDs("web", "a", "b"))
}

// Instances that were deleted without a running operator are removed from the list once the
// shard is synced.
func TestProviderIDsOfGoneInstancesAreRemovedOnceSynced(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 4, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	f.awaitProviderIDs("web", f.providerIDs("web", "a", "b"))
	f.stop()
	f.must(f.shards.Set.DeleteInstance(t.Context(), "b", f.liveInstances("b", "web")[0]))
	f.shards.Shard("b").SetTiming(func(timing *shardstest.Timing) { timing.Tombstone = 0 })
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	f.shards.Configure("a")
	f.shards.Configure("a", "b")
	f.runOperator(f.shards)
	f.awaitProviderIDs("web", f.providerIDs("web", "a", "b"))
}

// An ID of no known shard is removed only once all shards are synced.
func TestUnknownProviderIDStaysUntilAllShardsAreSynced(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 2, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 1, 1)
	living := f.providerIDs("web", "a", "b")
	f.awaitProviderIDs("web", living)
	f.shards.Shard("b").Stop()
	f.eventually("b is not synced", func() error {
		if state, _ := f.shards.Set.State("b"); state.Synced {
			return fmt.Errorf("it is synced")
		}
		return nil
	})
	unknown := slices.Sorted(slices.Values(append(living, "process:///unknown")))
	f.patch(f.get("web"), fmt.Sprintf(`{"spec":{"providerIDList":["%s"]}}`, strings.Join(unknown, `","`)))
	f.listStays("web", unknown)
	f.shards.Shard("b").Start()
	f.awaitProviderIDs("web", living)
}

// Another operator, started by mistake, adds an instance to the list before the stream here has
// reported it. The ID stays, so that its Node is not deleted.
func TestProviderIDStaysBeforeStreamReportsIt(t *testing.T) {
	f := newFixture(t, "a")
	f.doubt = time.Minute
	f.runOperator(f.shards)
	f.pool("web", 1, "a")
	f.awaitSizes("web", []string{"a"}, 1)
	f.awaitProviderIDs("web", f.providerIDs("web", "a"))
	shard := f.shards.Shard("a")
	shard.Mute()
	shard.Upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: new(int32(2))})
	both := f.providerIDs("web", "a")
	if len(both) != 2 {
		t.Fatalf("the shard has %v", both)
	}
	f.patch(f.get("web"), fmt.Sprintf(`{"spec":{"providerIDList":["%s"]}}`, strings.Join(both, `","`)))
	f.listStays("web", both)
}

// A recreated pool, without list and status, starts with the MachinePool's list. Otherwise
// Cluster API would delete the nodes of a shard that is currently unreachable.
func TestRecreatedPoolKeepsProviderIDsOfMachinePool(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 4, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	all := f.providerIDs("web", "a", "b")
	f.awaitProviderIDs("web", all)
	f.stop()
	f.makeUnknown("b", "a", "b")

	old := f.get("web")
	f.patch(old, `{"metadata":{"finalizers":null}}`)
	f.must(f.api.Delete(t.Context(), old))
	recreated := &v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: old.Spec}
	recreated.Spec.ProviderIDList = nil
	f.create(recreated)
	f.reparent(old.UID, recreated)
	f.runOperator(f.shards)
	f.awaitProviderIDs("web", all)
	f.listStays("web", all)
	f.shards.Shard("b").Start()
	f.awaitProviderIDs("web", all)
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
}

// A pool that is restored without its parts and Machines keeps the IDs that its shards report,
// and recreates the objects.
func TestRestoredPoolWithoutPartsKeepsProviderIDs(t *testing.T) {
	f := startFixture(t, "a", "b")
	f.pool("web", 4, "a", "b")
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	all := f.providerIDs("web", "a", "b")
	f.awaitProviderIDs("web", all)
	f.awaitMachines("web", 4)
	f.stop()
	for _, list := range []client.ObjectList{&v1beta1.NstanceShardGroupList{}, &v1beta1.NstanceMachineList{}, &clusterv1.MachineList{}} {
		f.must(f.api.List(t.Context(), list, client.InNamespace(f.ns)))
		items, err := meta.ExtractList(list)
		f.must(err)
		for _, item := range items {
			o := item.(client.Object)
			f.patch(o, `{"metadata":{"finalizers":null}}`)
			f.must(f.api.Delete(t.Context(), o))
		}
	}
	recorded := f.recordLists("web")
	f.runOperator(f.shards)
	f.awaitMachines("web", 4)
	f.awaitSizes("web", []string{"a", "b"}, 2, 2)
	f.awaitProviderIDs("web", all)
	for _, list := range recorded() {
		if !slices.Equal(list, all) {
			t.Errorf("the list was %v, want %v", list, all)
		}
	}
}

// recordLists records a pool's providerIDList after each change, until the returned function is
// called.
func (f *fixture) recordLists(name string) func() [][]string {
	f.t.Helper()
	c, err := client.NewWithWatch(f.plane.Config, client.Options{Scheme: f.api.Scheme()})
	f.must(err)
	w, err := c.Watch(f.t.Context(), &v1beta1.NstanceMachinePoolList{}, client.InNamespace(f.ns),
		client.MatchingFields{"metadata.name": name})
	f.must(err)
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

// reparent changes the owner of a pool's parts to a recreated pool, as the restore of a backup
// does.
func (f *fixture) reparent(old types.UID, now *v1beta1.NstanceMachinePool) {
	f.t.Helper()
	for _, name := range []string{"web--a", "web--b"} {
		g := f.part(name)
		for i := range g.OwnerReferences {
			if g.OwnerReferences[i].UID == old {
				g.OwnerReferences[i].UID = now.UID
			}
		}
		f.must(f.api.Update(f.t.Context(), g))
	}
}
