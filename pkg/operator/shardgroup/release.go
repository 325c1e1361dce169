package shardgroup

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// release makes the shard delete the group, and removes the finalizer when the group is gone,
// so that the object's owner can wait for its machines. A group that can't be deleted stays on
// the shard.
func (x *one) release(ctx context.Context) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(&x.object, v1beta1.Finalizer) {
		return ctrl.Result{}, nil
	}
	if x.detached {
		return x.detach(ctx)
	}
	v := x.readShard()
	switch {
	case v.wait != nil:
		return *v.wait, nil
	case !v.configured:
		return x.letGo(ctx, corev1.EventTypeWarning, "ShardNotConfigured",
			fmt.Sprintf("group %s may still exist on shard %s, which is no longer in the operator's config", x.group(), x.shard()))
	case !v.heard():
		return ctrl.Result{RequeueAfter: lastPause}, x.show(ctx, v.status(&x.object))
	}
	return x.remove(ctx, v)
}

// remove requests the deletion once, and waits for it to complete. It also requests the
// deletion of a group that is not visible: a call with an unknown result, maybe of an earlier
// operator, may be about to create it. The shard's answer is authoritative, the group's
// absence from its state is not.
func (x *one) remove(ctx context.Context, v shardView) (ctrl.Result, error) {
	v.last, v.leaving = x.memory.of(x.req), true
	if v.group == nil && v.last.deleted(x.object.UID) {
		return x.letGo(ctx, "", "", "")
	}
	asked := v.last.deletes && v.last.holds(x.object.Generation, v.group.GetEtag())
	if asked && status.Code(v.last.err) == codes.FailedPrecondition {
		switch by := v.group.GetManager(); {
		case v.group.GetIsStatic():
			return x.leave(ctx, v.group)
		case by != "" && by != x.manager():
			return x.letGo(ctx, corev1.EventTypeWarning, "GroupManaged",
				fmt.Sprintf("group %s was not deleted: on shard %s it is managed by %s", x.group(), x.shard(), by))
		}
	}
	again := v.last.until.Sub(v.now)
	switch {
	case v.group != nil && !exists(v.group):
		return ctrl.Result{}, x.show(ctx, v.status(&x.object)) // in progress: events follow
	case asked && again > 0:
		v.invalid = v.last.problem()
		return ctrl.Result{RequeueAfter: again}, x.show(ctx, v.status(&x.object))
	}
	return x.call(ctx, func() error {
		return x.deleteGroup(ctx, v.group.GetEtag())
	})
}

// deleteGroup deletes the group, and remembers the result. If the operator is part of a
// Cluster that is being deleted, which the cache may not show yet, the group stays.
func (x *one) deleteGroup(ctx context.Context, etag string) error {
	if x.SelfHosted {
		cluster, err := capi.Cluster(ctx, x.Reader, &x.object)
		if err != nil {
			return err
		}
		if x.detached = capi.Leaving(cluster); x.detached {
			return nil
		}
	}
	o := callResult{of: x.object.UID, generation: x.object.Generation, was: etag, etag: etag, deletes: true}
	o.err = x.Shards.DeleteGroup(ctx, x.shard(), x.group(), x.manager())
	x.memory.remember(x.req, o, x.Now())
	return nil
}

// leave releases the object and leaves its group on the shard, whose static config names it.
func (x *one) leave(ctx context.Context, g *nstancev1.GroupStatus) (ctrl.Result, error) {
	if again, err := x.unmanage(ctx, g); again > 0 || err != nil {
		return ctrl.Result{RequeueAfter: again}, err
	}
	return x.letGo(ctx, corev1.EventTypeWarning, "GroupIsStatic", fmt.Sprintf("group %s was not deleted: it is in the static config of "+
		"shard %s; unless it is reset and removed there, the operator's next start imports it again", x.group(), x.shard()))
}

// unmanage makes the object no longer the manager of a group that outlives it. If the shard refuses, an
// event says so, and the object is released all the same. It may have to be called again, after a pause or
// an error.
func (x *one) unmanage(ctx context.Context, g *nstancev1.GroupStatus) (again time.Duration, err error) {
	if !exists(g) || g.GetManager() != x.manager() {
		return 0, nil
	}
	again, err = x.calls.Try(x.shard(), perShard, func() error {
		_, err := x.Shards.UpsertGroup(ctx, x.shard(), &nstancev1.UpsertGroupRequest{Key: x.group(), IfEtag: new(g.GetEtag()), Force: true})
		return err
	})
	if err != nil && !passing(err) {
		x.staysManaged(words(err))
		err = nil
	}
	return again, err
}

// staysManaged records an event that the object stays the manager of its group.
func (x *one) staysManaged(why string) {
	x.recordEvent(corev1.EventTypeWarning, "StillManaged",
		fmt.Sprintf("group %s of shard %s can only be changed by force, since this object stays its manager: %s", x.group(), x.shard(), why))
}

// detach releases the object and leaves its group on the shard: the operator is part of the
// Cluster that is being deleted. A shard that is not reachable does not hold that up.
func (x *one) detach(ctx context.Context) (ctrl.Result, error) {
	v := x.readShard()
	switch {
	case v.wait != nil:
		return *v.wait, nil
	case !v.heard():
		x.staysManaged("the shard does not answer")
	default:
		if again, err := x.unmanage(ctx, v.group); again > 0 || err != nil {
			return ctrl.Result{RequeueAfter: again}, err
		}
	}
	return x.letGo(ctx, corev1.EventTypeNormal, "Detached",
		fmt.Sprintf("its Cluster is being deleted: group %s stays on shard %s", x.group(), x.shard()))
}

// letGo removes our finalizer from the object. about is the text of an event on why the group
// was not deleted; empty if it was.
func (x *one) letGo(ctx context.Context, kind, reason, about string) (ctrl.Result, error) {
	if about != "" {
		x.recordEvent(kind, reason, about)
	}
	err := x.change(ctx, func(o client.Object) { controllerutil.RemoveFinalizer(o, v1beta1.Finalizer) })
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
