package shardgroup_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// behind has the controller's cache show one object as it was, while one is set.
func (s *site) behind() *atomic.Pointer[v1beta1.NstanceShardGroup] {
	var cached atomic.Pointer[v1beta1.NstanceShardGroup]
	s.through = func(c client.WithWatch) client.Client {
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

// TestAnOperatorThatIsBehind: another operator has scaled the group, in Kubernetes and
// on the shard, and this one's cache does not know it yet. What the shard has differs
// from what is known to be wanted, and is not taken back.
func TestAnOperatorThatIsBehind(t *testing.T) {
	s := newSite(t, "a")
	cached := s.behind()
	s.start()
	web := s.object("web", "a", 4)
	web.Spec.Template = "knd"
	s.create(web)
	s.awaits(web, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	s.eventually("the object is quiet", func() error {
		was := web.ResourceVersion
		if err := s.get(web); err != nil || was != web.ResourceVersion {
			return fmt.Errorf("it was written, %w", err)
		}
		return nil
	})
	pushed := len(s.shards.upserts("a"))

	cached.Store(web.DeepCopy())
	s.edit(web, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(5)) })
	s.shards.change("a", func(x *shardState) {
		x.groups["web"].Size = 5
		x.touch(x.groups["web"])
	})
	planetest.Consistently(t, 700*time.Millisecond, "the shard keeps its five", func(context.Context) error {
		if n := len(s.shards.upserts("a")); n != pushed {
			return fmt.Errorf("pushed %d times, want %d", n, pushed)
		}
		return nil
	})
	cached.Store(nil)
	s.edit(web, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(6)) })
	s.eventually("it goes on", func() error {
		if n := len(s.shards.upserts("a")); n != pushed+1 {
			return fmt.Errorf("pushed %d times, want %d", n, pushed+1)
		}
		return nil
	})
}

// TestAGroupThatIsMadeAnew: another operator has let an object go and pushed its
// successor, of which this one's cache knows nothing yet. The new group is not deleted.
func TestAGroupThatIsMadeAnew(t *testing.T) {
	s := newSite(t, "a")
	cached := s.behind()
	s.start()
	old := s.settled("a", dynamic(2))
	s.shards.change("a", func(x *shardState) { x.state.Reachable = false }) // so that it waits
	s.delete(old)
	s.must(s.get(old))
	cached.Store(old.DeepCopy())
	s.edit(old, func(o *v1beta1.NstanceShardGroup) { o.Finalizers = nil })
	next := s.object("web", "a", 3)
	s.create(next)
	s.shards.change("a", func(x *shardState) {
		x.state.Reachable, x.groups["web"].Size = true, 3
		x.touch(x.groups["web"])
	})
	planetest.Consistently(t, 700*time.Millisecond, "the shard keeps its new group", func(context.Context) error {
		if all := s.shards.deletes("a"); len(all) > 0 {
			return fmt.Errorf("deleted %v", all)
		}
		return nil
	})
	cached.Store(nil)
	s.resize(next, 4)
	s.eventually("it goes on", func() error {
		if g := s.shards.Group("a", "web"); g.GetSize() != 4 {
			return fmt.Errorf("the group is %v", g)
		}
		return nil
	})
	s.delete(next)
	s.eventually("it is deleted when it is to be", func() error {
		if all := s.shards.deletes("a"); len(all) != 1 {
			return fmt.Errorf("deleted %v", all)
		}
		return nil
	})
}
