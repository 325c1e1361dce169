package shardgroup

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// grace is for how long a call may be repeated before its group speaks of that.
	grace = 3 * time.Second
	// manyPause is when a status that waits for the changes of others is looked at again.
	manyPause = 300 * time.Millisecond
)

// push has the shard make the group as it is wanted, if it is not.
func (x *one) push(ctx context.Context) (ctrl.Result, error) {
	if err := x.note(ctx); err != nil {
		return ctrl.Result{}, err
	}
	v := x.look()
	if v.wait != nil {
		return *v.wait, nil
	}
	if !v.heard() {
		return ctrl.Result{RequeueAfter: lastPause}, x.show(ctx, v.status(&x.object))
	}
	v.last = x.memory.of(x.req)
	request, err := decide(&x.object.Spec, x.known(v))
	switch {
	case err != nil:
		v.invalid = problem{"InvalidSpec", err.Error()}
	case request != nil && request.Template == nil && !exists(v.group):
		v.invalid = problem{"NoSuchGroup", fmt.Sprintf("shard %s has no group %s, and spec.template does not say what to make it from",
			x.shard(), x.group())}
	case request != nil && !x.detached:
		return x.ask(ctx, v, request)
	}
	if x.amidMany(v) {
		return ctrl.Result{RequeueAfter: manyPause}, nil
	}
	v.settled = request == nil && err == nil
	return ctrl.Result{}, x.show(ctx, v.status(&x.object))
}

// ask asks the shard for a change, unless the last answer to the same still counts.
func (x *one) ask(ctx context.Context, v view, request *nstancev1.UpsertGroupRequest) (ctrl.Result, error) {
	again := v.last.until.Sub(v.now)
	if again <= 0 || !v.last.holds(x.object.Generation, v.group.GetEtag()) {
		fresh, result, err := x.fresh(v)
		if fresh {
			x.call(request) //nolint:contextcheck // the call goes on after the look
		}
		return result, err
	}
	if v.last.err == nil && v.last.etag != v.group.GetEtag() {
		return ctrl.Result{RequeueAfter: min(again, time.Second)}, nil // what it answered is yet to be seen
	}
	if v.invalid = v.last.problem(); v.invalid.reason == "" && again < grace {
		return ctrl.Result{RequeueAfter: again}, nil // too short to speak of
	}
	return ctrl.Result{RequeueAfter: again}, x.show(ctx, v.status(&x.object))
}

// look is what is known of the object's shard and group.
func (x *one) look() view {
	v := view{shard: x.shard(), now: x.Now()}
	v.state, v.configured = x.Shards.State(v.shard)
	_, left := v.state.Silent(v.now)
	switch {
	case !v.configured && len(x.Shards.Names()) == 0:
		v.wait = &ctrl.Result{RequeueAfter: time.Second} // none is, as yet
	case !v.configured:
	case !v.state.Known && (v.state.Reachable || v.state.Err == nil):
		v.wait = &ctrl.Result{} // the operator has just begun; its first word will be heard of
	case left > 0 && !saidSilent(&x.object):
		v.wait = &ctrl.Result{RequeueAfter: left}
	case v.state.Reachable:
		v.group = x.Shards.Group(v.shard, x.group())
		if !exists(v.group) && !v.state.Synced {
			v.wait = &ctrl.Result{RequeueAfter: time.Second} // it may be there all the same
		}
	}
	return v
}

func saidSilent(o *v1beta1.NstanceShardGroup) bool {
	return meta.IsStatusConditionFalse(o.Status.Conditions, v1beta1.ConditionShardReachable)
}

// known is what a decision is made on.
func (x *one) known(v view) known {
	_, surge := x.object.Annotations[annotationSurge]
	return known{
		group: v.group,
		surge: surge && !v.last.tookSurge(),
		taken: x.object.Status.ObservedGeneration == x.object.Generation || v.last.accepted(x.object.Generation),
		vars:  cmp.Or(v.last.took(), x.object.Annotations[annotationVars]),
		gone:  x.gone,
	}
}

// gone reports whether an instance has certainly left.
func (x *one) gone(id string) bool {
	i := x.Shards.Instance(x.shard(), id)
	if i == nil {
		return x.Shards.Missing(x.shard(), x.group(), id)
	}
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETING || i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
}

// amidMany reports whether the group was changed a moment ago, as one of many. What comes
// of that is shown when the others have been changed too: a shard writes changes together
// that come together, and a thousand statuses between them would draw them apart.
func (x *one) amidMany(v view) bool {
	return v.last.err == nil && v.now.Sub(v.last.at) < grace && (x.looks.any() || x.calls.many(v.shard))
}

// fresh reports whether the object is the one that there is. The cache may be behind:
// another operator, which is on its way out or was started by mistake, has scaled the
// group, and the change would take that back; or it has let the object go, and made the
// group anew. So the object is read past the cache first, after all that was known of
// the group. If it is not known to be fresh, the result says when it is decided anew.
func (x *one) fresh(v view) (bool, ctrl.Result, error) {
	is := basis{identity{x.object.UID, x.object.Generation}, v.group.GetEtag()}
	switch {
	case x.seen == nil || x.seen.of != is:
		x.looks.ask(x.req, is)
		return false, ctrl.Result{}, nil
	case x.seen.err != nil:
		return false, ctrl.Result{}, x.seen.err
	case !x.seen.fresh:
		return false, ctrl.Result{RequeueAfter: firstPause}, nil
	}
	return true, ctrl.Result{}, nil
}

// call begins the call that asks for a change, when there is a place for it. Until then
// the look stays good: the shard takes the change only if the group is what it was before
// the look, so that it makes no difference when it comes.
func (x *one) call(request *nstancev1.UpsertGroupRequest) {
	o := outcome{generation: x.object.Generation, was: request.GetIfEtag()}
	o.unsurged = request.MaxSurge != nil && request.GetMaxSurge() == ""
	if request.GetVars() != nil {
		o.vars = digest(x.object.Spec.Vars)
	}
	shard, all := x.shard(), x.Shards
	started := x.calls.start(x.req, shard, func(ctx context.Context) outcome {
		answer, err := all.UpsertGroup(ctx, shard, request)
		o.etag, o.err = answer.GetGroup().GetEtag(), err
		return o
	})
	if !started {
		x.looks.keep(x.req, x.seen)
	}
}

// note keeps with the object which vars the shard has taken, and whether it may have
// been given a surge.
func (x *one) note(ctx context.Context) error {
	had, last := x.object.Annotations, x.memory.of(x.req)
	all := maps.Clone(had)
	if all == nil {
		all = map[string]string{}
	}
	if took := last.took(); took != "" {
		all[annotationVars] = took
	}
	switch {
	case x.object.Spec.Rotation.MaxSurge != nil:
		all[annotationSurge] = "true"
	case last.tookSurge():
		delete(all, annotationSurge)
	}
	if maps.Equal(all, had) {
		return nil
	}
	return x.change(ctx, func(o client.Object) { o.SetAnnotations(all) })
}

// change writes what edit changes of the object, unless somebody else changed it since
// it was read.
func (x *one) change(ctx context.Context, edit func(client.Object)) error {
	before := x.object.DeepCopy()
	edit(&x.object)
	return x.Client.Patch(ctx, &x.object, capi.Locked(before))
}

// show writes the status, if it is another one, and tells in events what has become
// worse. The cache may not have what was written a moment ago, so that a patch of what
// differs from it could mix two states: then it is a conflict.
func (x *one) show(ctx context.Context, s v1beta1.NstanceShardGroupStatus) error {
	before := x.object.DeepCopy()
	if equality.Semantic.DeepEqual(before.Status, s) {
		return nil
	}
	x.object.Status = s
	patch := capi.Locked(before)
	if err := x.Client.Status().Patch(ctx, &x.object, patch); err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, kind := range []string{v1beta1.ConditionShardReachable, v1beta1.ConditionConfigValid} {
		was, is := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(s.Conditions, kind)
		if is != nil && is.Status == "False" && (was == nil || was.Status != is.Status || was.Message != is.Message) {
			x.tell(corev1.EventTypeWarning, is.Reason, is.Message)
		}
	}
	return nil
}

// tell records an event on the object. Its note has at most 1,024 bytes.
func (x *one) tell(kind, reason, text string) {
	x.Recorder.Eventf(&x.object, nil, kind, reason, "SyncGroup", "%.1000s", text)
}
