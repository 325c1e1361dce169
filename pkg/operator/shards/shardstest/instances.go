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

// request is what an idempotency key stands for.
type request struct {
	id, group, instanceType string
	vars                    *structpb.Struct
	last                    *nstancev1.InstanceStatus // as it was last known, when its tombstone is gone
	removed                 bool                      // somebody asked for its end
}

// MaxPage is how many instances a page lists at most.
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
				return nil, invalid("idempotency_key", err.Error())
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
		i := s.create(g, now)
		i.OnDemand, i.IdempotencyKey = true, key
		i.InstanceType = cmp.Or(req.GetInstanceType(), i.InstanceType)
		if key != "" {
			s.requests[key] = &request{id: i.Id, group: g.name, instanceType: req.GetInstanceType(), vars: req.GetVars()}
		}
		resp := &nstancev1.CreateInstanceResponse{Instance: proto.CloneOf(i.InstanceStatus)}
		s.settle()
		return resp, nil
	})
}

// named is the instance that a request's key names; nil: the key may name a new one.
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
	case len(r.vars.GetFields())+len(req.GetVars().GetFields()) > 0 && !proto.Equal(r.vars, req.GetVars()):
		return nil, rpc.Precondition.Errorf("vars: the idempotency key %s names an instance with other vars", key)
	}
	return last, nil
}

// lastOf is the instance that a key names, as it is now or as it was last told of.
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
				return nil, invalid("id", err.Error())
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
			return nil, invalid("id", "required, unless an idempotency_key is given")
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
		s.settle()
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
		s.settle()
		return &nstancev1.AcknowledgeDrainedResponse{}, nil
	})
}

func phaseName(p nstancev1.InstancePhase) string {
	if p == pending {
		return "pending"
	}
	return "running"
}

// Kill ends an instance's machine: the provider has none any more. One of a group is
// replaced.
func (s *Shard) Kill(id string) {
	s.world.tb.Helper()
	s.act(id, func(i *instance, now time.Time) {
		if i.Phase != deleted {
			s.bury(i, "vm-gone", now)
		}
	})
}

// Notice has the provider announce that it ends an instance's machine.
func (s *Shard) Notice(id string, at time.Time) { s.Drain(id, "termination-notice", at) }

// Drain has an instance drain for a reason. One of a group is replaced at once.
func (s *Shard) Drain(id, reason string, deleteAt time.Time) {
	s.world.tb.Helper()
	s.act(id, func(i *instance, now time.Time) { s.drain(i, reason, now, deleteAt) })
}

// Refuse has a pending instance come to nothing: the provider refused to make it, in
// these words.
func (s *Shard) Refuse(id, words string) {
	s.world.tb.Helper()
	s.act(id, func(i *instance, now time.Time) {
		if i.Phase != pending {
			s.tb.Errorf("instance %s can't come to nothing any more: it is in phase %s", id, i.Phase)
			return
		}
		i.LastError, i.LastErrorAt = words, timestamppb.New(now)
		i.ProviderId, i.NodeProviderId, i.ProviderState = "", "", ""
		s.bury(i, createFailed, now)
	})
}
