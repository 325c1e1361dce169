package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// create asks for the instance, unless its id is known, and writes the id down. The
// call has the key that was written down before: whoever makes it again gets the same
// instance.
func (r *Reconciler) create(ctx context.Context, s *scope) outcome {
	m := s.machine
	if m.Spec.InstanceID != "" {
		return outcome{}
	}
	if !s.state.Reachable {
		return outcome{reason: reasonUnreachable, message: unreachable(m), unreachable: true, again: later}
	}
	request, err := newInstance(m)
	if err != nil {
		return outcome{reason: reasonRefused, message: err.Error()}
	}
	var made *nstancev1.InstanceStatus
	asked, err := r.call(s, func(shard string) (err error) {
		made, err = r.Shards.CreateInstance(ctx, shard, request)
		return err
	})
	switch {
	case err != nil:
		return failed(m, err)
	case !asked:
		return inLine()
	}
	to := m.DeepCopy()
	to.Spec.InstanceID = v1beta1.InstanceID(made.GetId())
	to.Spec.ProviderID = made.GetNodeProviderId()
	if err := r.write(ctx, m, to); err != nil {
		return outcome{err: err}
	}
	s.machine = to
	r.look(s)
	return outcome{}
}

// identify writes down the id that the instance's node has, once there is a machine.
func (r *Reconciler) identify(ctx context.Context, s *scope) outcome {
	id := s.instance.GetNodeProviderId()
	if id == "" || s.machine.Spec.ProviderID != "" {
		return outcome{}
	}
	to := s.machine.DeepCopy()
	to.Spec.ProviderID = id
	if err := r.write(ctx, s.machine, to); err != nil {
		return outcome{err: err}
	}
	s.machine = to
	return outcome{}
}

func newInstance(m *v1beta1.NstanceMachine) (*nstancev1.CreateInstanceRequest, error) {
	request := &nstancev1.CreateInstanceRequest{Group: string(m.Spec.Group), IdempotencyKey: m.Spec.IdempotencyKey}
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

// failed says what follows from a call that failed. What the shard answers is told in
// its own words; that it can't be reached, in words that stay the same.
func failed(m *v1beta1.NstanceMachine, err error) outcome {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied, codes.Unimplemented:
		return outcome{reason: reasonRefused, message: words(err), again: slowly}
	case codes.ResourceExhausted:
		return outcome{reason: reasonNoCapacity, message: words(err), again: later}
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return outcome{reason: reasonUnreachable, message: unreachable(m), unreachable: true, err: err}
	default:
		return outcome{reason: reasonFailed, message: words(err), err: err}
	}
}

// inLine is when others are asking the same shard, and it is not yet this one's turn.
func inLine() outcome { return outcome{inLine: true, again: later} }

func words(err error) string {
	const most = 1024
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

func unreachable(m *v1beta1.NstanceMachine) string {
	return fmt.Sprintf("shard %s does not answer", m.Spec.Shard)
}
