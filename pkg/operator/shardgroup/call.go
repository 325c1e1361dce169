package shardgroup

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

const (
	// perShard limits concurrent calls to one shard, which writes as many groups of a tenant at a
	// time.
	perShard = 16
	// lookTimeout bounds the API server's answer.
	lookTimeout = 10 * time.Second
)

// call makes a call to the shard, unless too many are running or the object is not current. Then
// the object is reconciled again, by the result and the group as it is now.
func (x *one) call(ctx context.Context, send func() error) (ctrl.Result, error) {
	current := false
	again, err := x.calls.Try(x.shard(), perShard, func() (err error) {
		if current, err = x.current(ctx); !current {
			return err
		}
		return send()
	})
	switch {
	case err != nil || again > 0:
		return ctrl.Result{RequeueAfter: again}, err
	case !current:
		return ctrl.Result{RequeueAfter: firstPause}, nil
	}
	return x.sync(ctx)
}

// current reports whether the object is current. The cache may be stale: another operator,
// which is shutting down or was started by mistake, may have scaled the group, and the change
// would revert that; or it may have released the object, and the change would create the group
// again. So the object is read uncached, after the group's state was read.
func (x *one) current(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var now metav1.PartialObjectMetadata
	now.SetGroupVersionKind(v1beta1.GroupVersion().WithKind("NstanceShardGroup"))
	err := x.Reader.Get(ctx, x.req.NamespacedName, &now)
	return err == nil && now.UID == x.object.UID && now.Generation == x.object.Generation, client.IgnoreNotFound(err)
}
