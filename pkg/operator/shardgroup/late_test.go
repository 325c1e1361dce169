package shardgroup_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// conflicts counts the status writes that were refused because the object was not the last one.
func (f *fixture) conflicts() *atomic.Int32 {
	var n atomic.Int32
	through := f.intercept
	f.intercept = func(c client.WithWatch) client.Client {
		return through(withWatch{interceptor.NewClient(c, interceptor.Funcs{SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			err := c.SubResource(sub).Patch(ctx, o, p, opts...)
			if apierrors.IsConflict(err) {
				n.Add(1)
			}
			return err
		}})})
	}
	return &n
}

// TestNoWriteBeforeCacheHasLastOne: while the cache does not have the object's last write, no
// other one is tried, unless that lasts so long that the versions may have gone back.
func TestNoWriteBeforeCacheHasLastOne(t *testing.T) {
	f := newFixture(t, "a")
	cached := f.staleCache()
	conflicts := f.conflicts()
	var late atomic.Int64
	began := time.Now()
	f.now = func() time.Time { return began.Add(time.Duration(late.Load())) }
	f.start()
	o := f.createReady("a", staticGroup(2))
	cached.Store(o.DeepCopy())
	a := f.shards.Shard("a")
	a.NoRoom(true)
	a.Kill(a.Group("web").GetInstances()[0].GetId())
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	a.NoRoom(false)
	planetest.Consistently(t, 700*time.Millisecond, "no other write is tried", func(context.Context) error {
		if n := conflicts.Load(); n > 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	cached.Store(nil)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")

	cached.Store(o.DeepCopy())
	a.NoRoom(true)
	a.Kill(a.Group("web").GetInstances()[0].GetId())
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	a.KillAll("web")
	f.eventually("a write is tried", func() error {
		late.Add(int64(time.Second))
		if n := conflicts.Load(); n == 0 {
			return errors.New("none is")
		}
		return nil
	})
	cached.Store(nil)
	a.NoRoom(false)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
}
