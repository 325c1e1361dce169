package shardstest

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// request is the record of an idempotency key.
type request struct {
	id, group, instanceType string
	namespace               string
	vars                    *structpb.Struct
	last                    *nstancev1.InstanceStatus // the last status, once its tombstone has expired
	removed                 bool                      // its deletion was requested
}

// MaxPage is the maximum page size of a list of instances.
const MaxPage = 1000

func withDefault(instanceType string) string { return cmp.Or(instanceType, DefaultInstanceType) }

// ListInstances implements OperatorServiceServer.
func (s *service) ListInstances(ctx context.Context, req *nstancev1.ListInstancesRequest) (*nstancev1.ListInstancesResponse, error) {
	return serve(ctx, s, "ListInstances", req, func(time.Time) (*nstancev1.ListInstancesResponse, error) {
		limit := int(min(cmp.Or(req.GetPageSize(), MaxPage), MaxPage))
		resp := &nstancev1.ListInstancesResponse{}
		for _, i := range s.byAge() {
			switch {
			case i.Id <= req.GetPageToken(), req.GetGroup() != "" && i.Group != req.GetGroup(),
				i.Phase == deleted && !req.GetIncludeDeleted():
				continue
			case len(resp.Instances) == limit:
				resp.NextPageToken = resp.Instances[limit-1].GetId()
				return resp, nil
			}
			resp.Instances = append(resp.Instances, proto.CloneOf(i.InstanceStatus))
		}
		return resp, nil
	})
}

// GetInstanceStatus implements OperatorServiceServer.
func (s *service) GetInstanceStatus(
	ctx context.Context, req *nstancev1.GetInstanceStatusRequest,
) (*nstancev1.GetInstanceStatusResponse, error) {
	return serve(ctx, s, "GetInstanceStatus", req, func(time.Time) (*nstancev1.GetInstanceStatusResponse, error) {
		i := s.instances[req.GetId()]
		if i == nil {
			return nil, rpc.NotFound.Errorf("no such instance %s", req.GetId())
		}
		return &nstancev1.GetInstanceStatusResponse{Instance: proto.CloneOf(i.InstanceStatus)}, nil
	})
}

// CreateInstance implements OperatorServiceServer.
func (s *service) CreateInstance(ctx context.Context, req *nstancev1.CreateInstanceRequest) (*nstancev1.CreateInstanceResponse, error) {
	return serve(ctx, s, "CreateInstance", req, func(now time.Time) (*nstancev1.CreateInstanceResponse, error) {
		key := req.GetIdempotencyKey()
		if key != "" {
			if err := fleet.CheckRequestKey(key); err != nil {
				return nil, rpc.InvalidField("idempotency_key", err.Error())
			}
			there, err := s.named(req)
			if there != nil || err != nil {
				return &nstancev1.CreateInstanceResponse{Instance: there}, err
			}
		}
		g := s.groups[req.GetGroup()]
		switch {
		case g == nil:
			return nil, rpc.NotFound.Errorf("no such group %s", req.GetGroup())
		case g.removed:
			return nil, rpc.Precondition.Errorf("group %s is being deleted", g.name)
		}
		if err := s.admits(g, req); err != nil {
			return nil, err
		}
		i := s.create(g, now)
		i.OnDemand, i.IdempotencyKey, i.Namespace = true, key, req.GetNamespace()
		i.InstanceType = cmp.Or(req.GetInstanceType(), i.InstanceType)
		if key != "" {
			s.requests[key] = &request{
				id: i.Id, group: g.name, instanceType: req.GetInstanceType(), namespace: req.GetNamespace(), vars: req.GetVars(),
			}
		}
		resp := &nstancev1.CreateInstanceResponse{Instance: proto.CloneOf(i.InstanceStatus)}
		s.converge()
		return resp, nil
	})
}

// named returns the instance of a request's key; nil if the key is new.
func (s *state) named(req *nstancev1.CreateInstanceRequest) (*nstancev1.InstanceStatus, error) {
	key := req.GetIdempotencyKey()
	r := s.requests[key]
	if r == nil {
		return nil, nil //nolint:nilnil // documented
	}
	last := s.lastOf(r)
	if last.GetPhase() == deleted && nothingMade(last) && !r.removed {
		return nil, nil //nolint:nilnil // documented
	}
	switch {
	case r.group != req.GetGroup():
		return nil, rpc.Precondition.Errorf("group: the idempotency key %s names an instance of group %s, not %s", key, r.group, req.GetGroup())
	case r.instanceType != req.GetInstanceType():
		return nil, rpc.Precondition.Errorf("instance_type: the idempotency key %s names an instance with the override %q, not %q",
			key, r.instanceType, req.GetInstanceType())
	case r.namespace != req.GetNamespace():
		return nil, rpc.Precondition.Errorf("namespace: the idempotency key %s names an instance for a pod of %q, not %q",
			key, r.namespace, req.GetNamespace())
	case len(r.vars.GetFields())+len(req.GetVars().GetFields()) > 0 && !proto.Equal(r.vars, req.GetVars()):
		return nil, rpc.Precondition.Errorf("vars: the idempotency key %s names an instance with other vars", key)
	}
	return last, nil
}

// lastOf returns a key's instance, or its last status.
func (s *state) lastOf(r *request) *nstancev1.InstanceStatus {
	if i := s.instances[r.id]; i != nil {
		return proto.CloneOf(i.InstanceStatus)
	}
	return proto.CloneOf(r.last)
}

func nothingMade(i *nstancev1.InstanceStatus) bool {
	return i.GetReason() == createFailed || i.GetReason() == "create-timeout"
}

const createFailed = "create-failed"

// DeleteInstance implements OperatorServiceServer.
func (s *service) DeleteInstance(ctx context.Context, req *nstancev1.DeleteInstanceRequest) (*nstancev1.DeleteInstanceResponse, error) {
	return serve(ctx, s, "DeleteInstance", req, func(now time.Time) (*nstancev1.DeleteInstanceResponse, error) {
		id := req.GetId()
		switch target := req.GetTarget().(type) {
		case *nstancev1.DeleteInstanceRequest_Id:
			if _, err := fleet.ParseID(id); err != nil {
				return nil, rpc.InvalidField("id", err.Error())
			}
		case *nstancev1.DeleteInstanceRequest_IdempotencyKey:
			r := s.requests[target.IdempotencyKey]
			if r == nil {
				return nil, rpc.NotFound.Errorf("no instance was created with the idempotency key %s", target.IdempotencyKey)
			}
			r.removed, id = true, r.id
			if s.instances[id] == nil {
				return &nstancev1.DeleteInstanceResponse{}, nil
			}
		default:
			return nil, rpc.InvalidField("id", "required unless idempotency_key is set")
		}
		i := s.instances[id]
		switch {
		case i == nil:
			return nil, rpc.NotFound.Errorf("no such instance %s", id)
		case !i.active():
		case i.OnDemand:
			s.leave(i, "asked-to-be-deleted", now)
		case i.replace == "":
			i.replace = "asked-to-be-replaced"
			s.touch(i)
		}
		s.converge()
		return &nstancev1.DeleteInstanceResponse{}, nil
	})
}

// AcknowledgeDrained implements OperatorServiceServer.
func (s *service) AcknowledgeDrained(
	ctx context.Context, req *nstancev1.AcknowledgeDrainedRequest,
) (*nstancev1.AcknowledgeDrainedResponse, error) {
	return serve(ctx, s, "AcknowledgeDrained", req, func(now time.Time) (*nstancev1.AcknowledgeDrainedResponse, error) {
		i := s.instances[req.GetId()]
		switch {
		case i == nil:
			return nil, rpc.NotFound.Errorf("no such instance %s", req.GetId())
		case i.active():
			return nil, rpc.Precondition.Errorf("instance %s is %s, not draining", i.Id, phaseName(i.Phase))
		case i.Phase == draining:
			i.Drain = proto.CloneOf(i.Drain)
			i.Drain.AckedAt = timestamppb.New(now)
			s.expire(i, i.Reason, now)
		}
		s.converge()
		return &nstancev1.AcknowledgeDrainedResponse{}, nil
	})
}

func phaseName(p nstancev1.InstancePhase) string {
	if p == pending {
		return "pending"
	}
	return "running"
}

// Kill makes an instance's machine disappear from the provider. A group's instance is
// replaced.
func (s *Shard) Kill(id string) {
	s.world.tb.Helper()
	s.act(id, func(i *instance, now time.Time) {
		if i.Phase != deleted {
			s.bury(i, "vm-gone", now)
		}
	})
}

// KillAll kills all instances of a group.
func (s *Shard) KillAll(group string) {
	s.change(func(now time.Time) {
		for _, i := range s.byAge() {
			if i.Group == group && i.Phase != deleted {
				s.bury(i, "vm-gone", now)
			}
		}
	})
}

// Boot makes an instance that has a machine register now.
func (s *Shard) Boot(id string) {
	s.world.tb.Helper()
	s.act(id, func(i *instance, now time.Time) { i.due = now })
}

// Edit changes the shard's record of an instance, for cases without a method of their own.
func (s *Shard) Edit(id string, change func(*nstancev1.InstanceStatus)) {
	s.world.tb.Helper()
	s.act(id, func(i *instance, _ time.Time) {
		i.InstanceStatus = proto.CloneOf(i.InstanceStatus)
		change(i.InstanceStatus)
		s.touch(i)
	})
}

// Notice makes the provider announce the end of an instance's machine.
func (s *Shard) Notice(id string, at time.Time) { s.Drain(id, "termination-notice", at) }

// Drain starts a drain of an instance. A group's instance is replaced at once.
func (s *Shard) Drain(id, reason string, deleteAt time.Time) {
	s.world.tb.Helper()
	s.act(id, func(i *instance, now time.Time) { s.drain(i, reason, now, deleteAt) })
}

// Refuse fails a pending instance: the provider refused to create it, with this error.
func (s *Shard) Refuse(id, words string) {
	s.world.tb.Helper()
	s.act(id, func(i *instance, now time.Time) {
		if i.Phase != pending {
			s.tb.Errorf("instance %s can't be refused: it is in phase %s", id, i.Phase)
			return
		}
		s.refuse(i, words, now)
	})
}

func (s *state) refuse(i *instance, words string, now time.Time) {
	i.InstanceStatus = proto.CloneOf(i.InstanceStatus)
	i.LastError, i.LastErrorAt = words, timestamppb.New(now)
	i.ProviderId, i.NodeProviderId, i.ProviderState = "", "", ""
	s.bury(i, createFailed, now)
}

// TimeOut ends a pending instance whose machine has not registered in time; details follow the reason.
func (s *Shard) TimeOut(id, details string) {
	s.world.tb.Helper()
	s.act(id, func(i *instance, now time.Time) {
		if i.Phase != pending || i.ProviderId == "" {
			s.tb.Errorf("instance %s can't time out: it is in phase %s, with machine %q", id, i.Phase, i.ProviderId)
			return
		}
		s.bury(i, "registration-timeout"+details, now)
	})
}
