package shardgroup

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// release has the shard delete the group, and lets the object go when it is gone there, so
// that the object's owner can wait for its machines. What can't be deleted lives on at the
// shard.
func (x *one) release(ctx context.Context) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(&x.object, v1beta1.Finalizer) {
		return ctrl.Result{}, nil
	}
	if x.detached {
		return x.letGo(ctx, corev1.EventTypeNormal, "Detached", "its Cluster goes: group %s lives on at shard %s")
	}
	v := x.look()
	switch {
	case v.wait != nil:
		return *v.wait, nil
	case !v.configured:
		return x.letGo(ctx, corev1.EventTypeWarning, "ShardNotConfigured",
			"group %s may live on at shard %s: the operator's config does not have that shard any more, so it can't be asked")
	case !v.heard():
		return ctrl.Result{RequeueAfter: lastPause}, x.show(ctx, v.status(&x.object))
	}
	return x.remove(ctx, v)
}

// remove asks for the deletion, once, and waits for its end. A group that is not seen is
// asked for too: it may be about to come, by a call of which it is not known what became,
// maybe of an operator before this one. The shard's answer is final, what it does not see
// is not.
func (x *one) remove(ctx context.Context, v view) (ctrl.Result, error) {
	v.last, v.leaving = x.memory.of(x.req), true
	if v.group == nil && v.last.deleted(x.object.UID) {
		return x.letGo(ctx, "", "", "")
	}
	asked := v.last.deletes && v.last.holds(x.object.Generation, v.group.GetEtag())
	if asked && v.group.GetIsStatic() && status.Code(v.last.err) == codes.FailedPrecondition {
		return x.letGo(ctx, corev1.EventTypeWarning, "GroupIsStatic",
			"group %s lives on: the static config of shard %s names it, so it can only be removed there")
	}
	again := v.last.until.Sub(v.now)
	switch {
	case v.group != nil && !exists(v.group):
		return ctrl.Result{}, x.show(ctx, v.status(&x.object)) // it is on its way, and each step is heard of
	case asked && again > 0:
		v.invalid = v.last.problem()
		return ctrl.Result{RequeueAfter: again}, x.show(ctx, v.status(&x.object))
	}
	fresh, result, err := x.fresh(v)
	if fresh {
		x.callDelete(v) //nolint:contextcheck // the call goes on after the look
	}
	return result, err
}

// callDelete begins the call that asks for the deletion.
func (x *one) callDelete(v view) {
	o := outcome{of: x.object.UID, generation: x.object.Generation, was: v.group.GetEtag(), etag: v.group.GetEtag(), deletes: true}
	shard, group, all := x.shard(), x.group(), x.Shards
	x.calls.start(x.req, shard, func(ctx context.Context) outcome {
		o.err = all.DeleteGroup(ctx, shard, group)
		return o
	})
}

// letGo takes our finalizer off the object, and says why the group is not gone, if so:
// about names the group and the shard.
func (x *one) letGo(ctx context.Context, kind, reason, about string) (ctrl.Result, error) {
	if about != "" {
		x.tell(kind, reason, fmt.Sprintf(about, x.group(), x.shard()))
	}
	err := x.change(ctx, func(o client.Object) { controllerutil.RemoveFinalizer(o, v1beta1.Finalizer) })
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
