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

// grace is how long a call is retried before the status reports it.
const grace = 3 * time.Second

// push makes the shard change the group to the spec, if it differs.
func (x *one) push(ctx context.Context) (ctrl.Result, error) {
	if err := x.note(ctx); err != nil {
		return ctrl.Result{}, err
	}
	v := x.readShard()
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
		v.invalid = problem{"NoSuchGroup", fmt.Sprintf("shard %s has no group %s: set spec.template to create it",
			x.shard(), x.group())}
	case request != nil && !x.detached:
		return x.requestChange(ctx, v, request)
	case ignoresOnDemand(x.object.Spec.OnDemand, v.group):
		v.invalid = problem{"Restricted", fmt.Sprintf("spec.onDemand: group %s is in the static config of shard %s: change its on_demand there",
			x.group(), x.shard())}
	}
	v.settled = request == nil && err == nil
	return ctrl.Result{}, x.show(ctx, v.status(&x.object))
}

// requestChange requests a change from the shard, unless the result of the same call still
// holds.
func (x *one) requestChange(ctx context.Context, v shardView, request *nstancev1.UpsertGroupRequest) (ctrl.Result, error) {
	again := v.last.until.Sub(v.now)
	if again <= 0 || !v.last.holds(x.object.Generation, v.group.GetEtag()) {
		return x.call(ctx, func() error {
			x.upsert(ctx, request)
			return nil
		})
	}
	if v.last.err == nil && v.last.etag != v.group.GetEtag() {
		return ctrl.Result{RequeueAfter: min(again, time.Second)}, nil // the change is not visible yet
	}
	if v.invalid = v.last.problem(); v.invalid.reason == "" && again < grace {
		return ctrl.Result{RequeueAfter: again}, nil // too recent to report
	}
	return ctrl.Result{RequeueAfter: again}, x.show(ctx, v.status(&x.object))
}

// upsert changes the group, and remembers the result.
func (x *one) upsert(ctx context.Context, request *nstancev1.UpsertGroupRequest) {
	o := callResult{generation: x.object.Generation, was: request.GetIfEtag()}
	o.unsurged = request.MaxSurge != nil && request.GetMaxSurge() == ""
	o.closed = request.OnDemand != nil && len(request.OnDemand.GetNamespaces())+len(request.OnDemand.GetNamespaceLabels()) == 0
	if request.GetVars() != nil {
		o.vars = digest(x.object.Spec.Vars)
	}
	answer, err := x.Shards.UpsertGroup(ctx, x.shard(), request)
	o.etag, o.err = answer.GetGroup().GetEtag(), err
	x.memory.remember(x.req, o, x.Now())
}

// readShard returns the state of the object's shard and group.
func (x *one) readShard() shardView {
	v := shardView{shard: x.shard(), now: x.Now()}
	v.state, v.configured = x.Shards.State(v.shard)
	_, left := v.state.Silent(v.now)
	switch {
	case !v.configured && len(x.Shards.Names()) == 0:
		v.wait = &ctrl.Result{RequeueAfter: time.Second} // no shard is configured yet
	case !v.configured:
	case !v.state.Known && (v.state.Reachable || v.state.Err == nil):
		v.wait = &ctrl.Result{} // the operator has just started; an event will follow
	case left > 0 && !saidSilent(&x.object):
		v.wait = &ctrl.Result{RequeueAfter: left}
	case v.state.Reachable:
		v.group = x.Shards.Group(v.shard, x.group())
		if !exists(v.group) && !v.state.Synced {
			v.wait = &ctrl.Result{RequeueAfter: time.Second} // the group may still exist
		}
	}
	return v
}

func saidSilent(o *v1beta1.NstanceShardGroup) bool {
	return meta.IsStatusConditionFalse(o.Status.Conditions, v1beta1.ConditionShardReachable)
}

// known returns the input of decide.
func (x *one) known(v shardView) known {
	_, surge := x.object.Annotations[annotationSurge]
	_, policy := x.object.Annotations[annotationOnDemand]
	return known{
		group: v.group,
		surge: surge && !v.last.tookSurge(), policy: policy && !v.last.tookOnDemand(),
		taken:   x.object.Status.ObservedGeneration == x.object.Generation || v.last.accepted(x.object.Generation),
		vars:    cmp.Or(v.last.took(), x.object.Annotations[annotationVars]),
		manager: x.manager(), claimed: v.last.err == nil && v.last.etag != "" && v.last.etag == v.group.GetEtag(),
		gone: x.gone, instances: x.Shards.Instances(x.shard(), x.group()),
	}
}

// manager is what the shard knows the object by, as the manager of its group.
func (x *one) manager() string { return "NstanceShardGroup " + x.req.String() }

// gone reports whether an instance is certainly gone.
func (x *one) gone(id string) bool {
	i := x.Shards.Instance(x.shard(), id)
	if i == nil {
		return x.Shards.Missing(x.shard(), x.group(), id)
	}
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETING || i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
}

// note records in annotations which vars the shard has accepted, and whether it may have a
// surge and an on_demand from us.
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
	switch {
	case x.object.Spec.OnDemand != nil:
		all[annotationOnDemand] = "true"
	case last.tookOnDemand():
		delete(all, annotationOnDemand)
	}
	if maps.Equal(all, had) {
		return nil
	}
	return x.change(ctx, func(o client.Object) { o.SetAnnotations(all) })
}

// change patches the object with edit, unless it has changed since it was read.
func (x *one) change(ctx context.Context, edit func(client.Object)) error {
	before := x.object.DeepCopy()
	edit(&x.object)
	if err := x.Client.Patch(ctx, &x.object, capi.Locked(before)); err != nil {
		return err
	}
	x.memory.wrote(x.req, &x.object, x.Now())
	return nil
}

// show patches a changed status, and records a Warning event for each condition that got
// worse. The cache may be stale, so a plain merge patch against it could mix two states: the
// patch is conditional.
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
	x.memory.wrote(x.req, &x.object, x.Now())
	for _, kind := range []string{v1beta1.ConditionShardReachable, v1beta1.ConditionConfigValid} {
		was, is := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(s.Conditions, kind)
		if is != nil && is.Status == "False" && (was == nil || was.Status != is.Status || was.Message != is.Message) {
			x.recordEvent(corev1.EventTypeWarning, is.Reason, is.Message)
		}
	}
	return nil
}

// recordEvent records an event on the object. Its note has at most 1,024 bytes.
func (x *one) recordEvent(kind, reason, text string) {
	x.Recorder.Eventf(&x.object, nil, kind, reason, "SyncGroup", "%.1000s", text)
}
