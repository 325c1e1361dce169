package shardgroup_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// createMany creates groups of size 1 on a shard, and their objects, and waits until all of
// them are ready.
func (f *fixture) createMany(shard string, n int) {
	f.t.Helper()
	for i := range n {
		key := fmt.Sprintf("web-%d", i)
		f.addGroup(shard, group{key: key, size: 1})
		f.create(f.object(key, shard, 1))
	}
	f.eventually("all objects are ready", func() error {
		for _, o := range f.list() {
			if !meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionReady) {
				return fmt.Errorf("%s is not ready", o.Name)
			}
		}
		return nil
	})
}

func (f *fixture) list() []v1beta1.NstanceShardGroup {
	f.t.Helper()
	var list v1beta1.NstanceShardGroupList
	f.must(f.client.List(f.t.Context(), &list, client.InNamespace(f.namespace)))
	return list.Items
}

// TestNoWritesWithoutChanges: an operator that starts with unchanged groups, or receives all of
// them again, writes nothing to the API server and the shard.
func TestNoWritesWithoutChanges(t *testing.T) {
	f := newFixture(t, "a")
	stop := f.start()
	f.createMany("a", 100)
	stop()
	before := f.list()
	f.start()
	last := f.object("last", "a", 1) // reconciled after the others
	last.Spec.Template = "knd"
	for range 3 {
		f.shards.Reconnect()
		f.shards.Heard()
	}
	f.create(last)
	f.awaitCondition(last, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if n := len(f.upserts("a")); n != 1 {
		t.Errorf("%d groups were pushed, want only that of %s", n, last.Name)
	}
	after := f.list()
	for _, o := range before {
		n := slices.IndexFunc(after, func(p v1beta1.NstanceShardGroup) bool { return p.Name == o.Name })
		if n < 0 || after[n].ResourceVersion != o.ResourceVersion {
			t.Errorf("%s was written", o.Name)
		}
	}
}

// manyAtOnce is more than what the controller does at a time.
const manyAtOnce = 200

// resizeMany changes the sizes of all objects of a shard at once.
func (f *fixture) resizeMany(shard string, size int32) {
	f.t.Helper()
	var edits sync.WaitGroup
	for _, o := range f.list() {
		if string(o.Spec.Shard) == shard {
			edits.Go(func() {
				before := o.DeepCopy()
				o.Spec.Size = &size
				if err := f.client.Patch(f.t.Context(), &o, client.MergeFrom(before)); err != nil {
					f.t.Error(err)
				}
			})
		}
	}
	edits.Wait()
}

// TestManyAtOnce: of many groups that are changed at once each is pushed once, and none is
// lost.
func TestManyAtOnce(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	f.createMany("a", manyAtOnce)
	began := time.Now()
	f.resizeMany("a", 3)
	f.eventually("all have their size", func() error {
		for _, o := range f.list() {
			if o.Status.ObservedGeneration != o.Generation || *o.Status.ActualSize != 3 ||
				!meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionReady) {
				return fmt.Errorf("%s has %+v", o.Name, o.Status)
			}
		}
		return nil
	})
	t.Logf("%d were changed in %v", manyAtOnce, time.Since(began))
	pushed := map[string]int{}
	for _, r := range f.upserts("a") {
		if pushed[r.GetKey()]++; r.GetSize() != 3 {
			t.Errorf("pushed %v", r)
		}
	}
	for key, n := range pushed {
		if n != 1 {
			t.Errorf("%s was pushed %d times", key, n)
		}
	}
	if len(pushed) != manyAtOnce {
		t.Errorf("%d were pushed, want %d", len(pushed), manyAtOnce)
	}
}

// maxCalls is the limit of concurrent calls to one shard.
const maxCalls = 16

// TestHungShard: a shard that does not respond delays neither the changes nor the statuses of
// another shard's groups.
func TestHungShard(t *testing.T) {
	f := newFixtureOn(t, slowShards(t, "a", "b"))
	f.shards.Run()
	f.start()
	f.createMany("a", manyAtOnce)
	o := f.createReady("b", dynamicGroup(2))
	a := f.shards.Shard("a")
	release := a.Hold("UpsertGroup")
	defer release()
	f.resizeMany("a", 2)
	f.eventually("calls are pending", func() error {
		if n := len(f.upserts("a")); n < maxCalls {
			return fmt.Errorf("%d are pending", n)
		}
		return nil
	})
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(3)) })
	f.eventually("the other shard's group is pushed", func() error {
		if all := f.upserts("b"); len(all) != 1 {
			return fmt.Errorf("pushed %v", all)
		}
		return nil
	})
	f.awaitObserved(o)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if n := len(f.upserts("a")); n > maxCalls {
		t.Errorf("%d calls are pending", n)
	}
	a.Lose("UpsertGroup", status.Error(codes.DeadlineExceeded, "no leader answered in time"), maxCalls) // the pending calls
	release()
	f.eventually("all have their size", func() error {
		for i := range manyAtOnce {
			if g := a.Group(fmt.Sprintf("web-%d", i)); g.GetSize() != 2 {
				return fmt.Errorf("group %v", g)
			}
		}
		return nil
	})
}

// TestScaleIsPushedAtOnce: no timer delays a change between the API server and the shard. With
// a delay of a second each, the fastest ninety of a hundred changes would take more than ninety
// seconds; without one they take seconds. The slowest ten do not count, because a busy machine
// pauses now and then. The benchmark measures the p99.
func TestScaleIsPushedAtOnce(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.createReady("a", staticGroup(0))
	var took []time.Duration
	for n := range 100 {
		f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(n + 1)) })
		began := time.Now()
		f.eventually("it is pushed", func() error {
			if g := f.shards.Shard("a").Group("web"); g.GetSize() != int32(n+1) {
				return fmt.Errorf("group %v", g)
			}
			return nil
		})
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("p50 %v, p99 %v", took[len(took)/2], took[len(took)-2])
	all := time.Duration(0)
	for _, each := range took[:90] {
		all += each
	}
	if all > 90*time.Second {
		t.Errorf("the fastest ninety changes took %v", all)
	}
}
