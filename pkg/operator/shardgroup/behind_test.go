package shardgroup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// staleCache lets the controller's cache return the stored object, if it is not nil, for every
// NstanceShardGroup.
func (f *fixture) staleCache() *atomic.Pointer[v1beta1.NstanceShardGroup] {
	var cached atomic.Pointer[v1beta1.NstanceShardGroup]
	f.intercept = func(c client.WithWatch) client.Client {
		return interceptor.NewClient(c, interceptor.Funcs{Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			g, ok := o.(*v1beta1.NstanceShardGroup)
			if old := cached.Load(); ok && old != nil {
				old.DeepCopyInto(g)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		}})
	}
	return &cached
}

// TestStaleCacheDoesNotRevertSize: another operator has scaled the group, in Kubernetes and on
// the shard, and this one's cache is stale. It does not revert the shard's group to its cached
// spec.
func TestStaleCacheDoesNotRevertSize(t *testing.T) {
	f := newFixture(t, "a")
	cached := f.staleCache()
	f.shards.Shard("a").NoRoom(true)
	f.start()
	web := f.object("web", "a", 4)
	web.Spec.Template = "knd"
	f.create(web)
	f.awaitCondition(web, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	f.awaitObserved(web)
	f.eventually("the object is not written any more", func() error {
		was := web.ResourceVersion
		if err := f.get(web); err != nil || was != web.ResourceVersion {
			return fmt.Errorf("it was written: %w", err)
		}
		return nil
	})
	pushed := len(f.upserts("a"))

	cached.Store(web.DeepCopy())
	f.edit(web, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(5)) })
	f.shards.Shard("a").Upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: new(int32(5))})
	f.shards.Heard()
	planetest.Consistently(t, 700*time.Millisecond, "the shard's group keeps its size of 5", func(context.Context) error {
		if n := len(f.upserts("a")); n != pushed {
			return fmt.Errorf("pushed %d times, want %d", n, pushed)
		}
		return nil
	})
	cached.Store(nil)
	f.edit(web, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(6)) })
	f.eventually("the current spec is pushed", func() error {
		if n := len(f.upserts("a")); n != pushed+1 {
			return fmt.Errorf("pushed %d times, want %d", n, pushed+1)
		}
		return nil
	})
}

// TestNoPushWithoutUncachedRead: an object that can't be read uncached is not pushed until it can.
func TestNoPushWithoutUncachedRead(t *testing.T) {
	f := newFixture(t, "a")
	var fails atomic.Bool
	var failed atomic.Int32
	f.beforeRead = func() error {
		if fails.Load() {
			failed.Add(1)
			return errors.New("not now")
		}
		return nil
	}
	f.start()
	o := f.createReady("a", dynamicGroup(2))
	fails.Store(true)
	f.resize(o, 3)
	f.eventually("it is read again and again", func() error {
		if n := failed.Load(); n < 3 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if all := f.upserts("a"); len(all) > 0 {
		t.Errorf("pushed %v", all)
	}
	fails.Store(false)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	f.awaitObserved(o)
	if all := f.upserts("a"); len(all) != 1 || all[0].GetSize() != 3 {
		t.Errorf("pushed %v", all)
	}
}

// TestGroupChangedDuringRead: the change is conditional on the group from before the
// object was read, so another operator's later change is not overwritten.
func TestGroupChangedDuringRead(t *testing.T) {
	f := newFixture(t, "a")
	a := f.shards.Shard("a")
	var once sync.Once
	f.beforeRead = func() error {
		once.Do(func() {
			a.Upsert(&nstancev1.UpsertGroupRequest{Key: "web", InstanceType: new("large")})
			f.shards.Heard()
		})
		return nil
	}
	f.addGroup("a", dynamicGroup(2))
	etag := a.Group("web").GetEtag()
	o := f.object("web", "a", 3)
	f.create(o)
	f.start()
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	f.awaitObserved(o)
	all := f.upserts("a")
	if len(all) != 2 || all[0].GetIfEtag() != etag || all[1].GetIfEtag() == etag {
		t.Errorf("pushed %v, want one on condition of %s, which fails, and another", all, etag)
	}
	if g := a.Group("web"); g.GetSize() != 3 || g.GetInstanceType() != "large" {
		t.Errorf("the group is %v", g)
	}
}

// TestStopDuringCall: the controller ends although a shard does not respond.
func TestStopDuringCall(t *testing.T) {
	f := newFixtureOn(t, slowShards(t, "a"))
	f.shards.Run()
	f.shards.Synced()
	stop := f.start()
	o := f.createReady("a", dynamicGroup(2))
	release := f.shards.Shard("a").Hold("UpsertGroup")
	defer release()
	f.resize(o, 3)
	f.eventually("the call hangs", func() error {
		if len(f.upserts("a")) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	stop() // fails if the manager does not end in time
}

// TestStaleCacheDoesNotDeleteRecreatedGroup: another operator has released an object and pushed
// its successor, and this one's cache is stale. The new group is not deleted.
func TestStaleCacheDoesNotDeleteRecreatedGroup(t *testing.T) {
	f := newFixture(t, "a")
	cached := f.staleCache()
	f.start()
	old := f.createReady("a", dynamicGroup(2))
	f.shards.Shard("a").Stop() // so that the deletion waits
	f.shards.Heard()
	f.delete(old)
	f.must(f.get(old))
	cached.Store(old.DeepCopy())
	f.edit(old, func(o *v1beta1.NstanceShardGroup) { o.Finalizers = nil })
	next := f.object("web", "a", 3)
	f.create(next)
	f.shards.Shard("a").Upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: new(int32(3))})
	f.shards.Shard("a").Start()
	f.shards.Heard()
	planetest.Consistently(t, 700*time.Millisecond, "the shard keeps the new group", func(context.Context) error {
		if all := f.deletes("a"); len(all) > 0 {
			return fmt.Errorf("deleted %v", all)
		}
		return nil
	})
	cached.Store(nil)
	f.resize(next, 4)
	f.eventually("the current spec is pushed", func() error {
		if g := f.shards.Shard("a").Group("web"); g.GetSize() != 4 {
			return fmt.Errorf("the group is %v", g)
		}
		return nil
	})
	f.delete(next)
	f.eventually("the new group is deleted with its object", func() error {
		if all := f.deletes("a"); len(all) != 1 {
			return fmt.Errorf("deleted %v", all)
		}
		return nil
	})
}
