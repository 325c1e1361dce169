package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// create requests the instance, unless there is one, and stores its ID. The call uses the
// stored idempotency key: repeating it returns the same instance, or another one if the first
// could not be created.
func (r *Reconciler) create(ctx context.Context, s *scope) stepResult {
	if o := r.await(s); o.stopped() {
		return o
	}
	if s.machine.Spec.InstanceID != "" && !unmade(s) {
		return stepResult{}
	}
	if o := r.move(ctx, s); o.stopped() {
		return o
	}
	made, o := r.request(ctx, s)
	if o.stopped() {
		return o
	}
	if tombstone(made) && made.GetId() == string(s.machine.Spec.InstanceID) {
		// The key keeps naming that instance: it had a machine, or was deleted on request.
		if o := r.renew(ctx, s, s.machine.Spec.Shard); o.stopped() {
			return o
		}
		if made, o = r.request(ctx, s); o.stopped() {
			return o
		}
	}
	to := s.machine.DeepCopy()
	to.Spec.InstanceID = v1beta1.InstanceID(made.GetId())
	to.Spec.ProviderID = made.GetNodeProviderId()
	own(to, s.owner)
	if o := r.store(ctx, s, to); o.stopped() {
		return o
	}
	return r.await(s) // it may have failed by now
}

// request calls CreateInstance.
func (r *Reconciler) request(ctx context.Context, s *scope) (made *nstancev1.InstanceStatus, o stepResult) {
	m := s.machine
	if !s.state.Reachable {
		return nil, stepResult{reason: reasonUnreachable, message: unreachable(m), unreachable: true, again: later}
	}
	request, err := newInstance(m)
	if err != nil {
		return nil, r.failed(s, v1beta1.CreationInvalid, err.Error())
	}
	again, err := r.call(s, func(shard string) (err error) {
		made, err = r.Shards.CreateInstance(ctx, shard, request)
		return err
	})
	switch {
	case err != nil:
		if reason, message, ok := refusal(m, err); ok {
			return nil, r.failed(s, reason, message)
		}
		return nil, callFailed(m, err)
	case again > 0:
		return nil, busy(again)
	}
	return made, stepResult{}
}

// renew stores a new idempotency key, for a creation that begins anew on that shard.
func (r *Reconciler) renew(ctx context.Context, s *scope, shard v1beta1.Name) stepResult {
	key, err := shards.NewKey(r.Random)
	if err != nil {
		return stepResult{err: err}
	}
	to := s.machine.DeepCopy()
	to.Spec.Shard, to.Spec.IdempotencyKey, to.Spec.InstanceID, to.Spec.ProviderID = shard, key, "", ""
	if to.Annotations[v1beta1.AnnotationShardChosen] != "" {
		to.Annotations[v1beta1.AnnotationShardChosen] = string(shard)
	}
	return r.store(ctx, s, to)
}

// store writes a changed object, and reads what the shard says of it.
func (r *Reconciler) store(ctx context.Context, s *scope, to *v1beta1.NstanceMachine) stepResult {
	if err := r.write(ctx, s.machine, to); err != nil {
		return stepResult{err: err}
	}
	s.machine, s.instance, s.absent = to, nil, false
	r.readShard(s)
	return stepResult{}
}

// identify stores the provider ID of the instance's node, once there is a machine.
func (r *Reconciler) identify(ctx context.Context, s *scope) stepResult {
	id := s.instance.GetNodeProviderId()
	if id == "" || s.machine.Spec.ProviderID != "" {
		return stepResult{}
	}
	to := s.machine.DeepCopy()
	to.Spec.ProviderID = id
	if err := r.write(ctx, s.machine, to); err != nil {
		return stepResult{err: err}
	}
	s.machine = to
	return stepResult{}
}

func newInstance(m *v1beta1.NstanceMachine) (*nstancev1.CreateInstanceRequest, error) {
	request := &nstancev1.CreateInstanceRequest{
		Group: string(m.Spec.Group), IdempotencyKey: m.Spec.IdempotencyKey, Namespace: m.Spec.PodNamespace,
	}
	if m.Spec.InstanceType != "" {
		request.InstanceType = &m.Spec.InstanceType
	}
	if len(m.Spec.Vars) == 0 {
		return request, nil
	}
	vars := map[string]any{}
	for name, value := range m.Spec.Vars {
		var v any
		if err := json.Unmarshal(value.Raw, &v); err != nil {
			return nil, fmt.Errorf("spec.vars.%s: %w", name, err)
		}
		vars[name] = v
	}
	var err error
	if request.Vars, err = structpb.NewStruct(vars); err != nil {
		return nil, fmt.Errorf("spec.vars: %w", err)
	}
	return request, nil
}

// callFailed returns the result of a failed call. The shard's own error texts are passed on; for
// an unreachable shard the text is constant.
func callFailed(m *v1beta1.NstanceMachine, err error) stepResult {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied, codes.Unimplemented:
		return stepResult{reason: reasonRefused, message: words(err), again: slowly}
	case codes.ResourceExhausted:
		return stepResult{reason: reasonNoCapacity, message: words(err), again: later}
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return stepResult{reason: reasonUnreachable, message: unreachable(m), unreachable: true, err: err}
	default:
		return stepResult{reason: reasonFailed, message: words(err), err: err}
	}
}

// call runs do for a machine's shard; if that has too many open calls, again is when to retry.
func (r *Reconciler) call(s *scope, do func(shard string) error) (again time.Duration, err error) {
	shard := string(s.machine.Spec.Shard)
	return r.calls.Try(shard, perShard, func() error { return do(shard) })
}

// busy is the result while the shard has too many open calls.
func busy(again time.Duration) stepResult { return stepResult{busy: true, again: again} }

func words(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), longest)], "")
}

func unreachable(m *v1beta1.NstanceMachine) string {
	return fmt.Sprintf("shard %s does not answer", m.Spec.Shard)
}
