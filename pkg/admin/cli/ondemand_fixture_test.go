package cli_test

import (
	"context"
	"slices"

	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// instanceState is the part of a shard for creates, deletes and drains of instances.
type instanceState struct {
	keys    map[string]*nstancev1.InstanceStatus // on-demand instances by idempotency key
	created []*nstancev1.CreateInstanceRequest
	deleted []string
	acked   []string
	refresh func() (*nstancev1.RefreshConfigResponse, error)
	// refreshWith responds to a refresh by its request, instead of refresh.
	refreshWith func(*nstancev1.RefreshConfigRequest) (*nstancev1.RefreshConfigResponse, error)
	preview     func(*nstancev1.PreviewConfigRequest) (*nstancev1.PreviewConfigResponse, error)
	// watchers receive every change of an instance.
	watchers map[chan *nstancev1.WatchInstancesResponse]bool
	breaks   int   // how many watches of groups fail before one succeeds
	refusal  error // of watches of groups and acknowledgements
}

func (s *shard) RefreshConfig(_ context.Context, req *nstancev1.RefreshConfigRequest) (*nstancev1.RefreshConfigResponse, error) {
	if s.refreshWith != nil {
		return s.refreshWith(req)
	}
	return s.refresh()
}

func (s *shard) CreateInstance(_ context.Context, req *nstancev1.CreateInstanceRequest) (*nstancev1.CreateInstanceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created = append(s.created, req)
	if s.keys == nil {
		s.keys = map[string]*nstancev1.InstanceStatus{}
	}
	i := s.keys[req.GetIdempotencyKey()]
	if i == nil {
		i = &nstancev1.InstanceStatus{
			Id: "knd01m7y19apkenaskp9fvc72c4st", Tenant: "default", Group: req.GetGroup(), OnDemand: true,
			Phase: nstancev1.InstancePhase_INSTANCE_PHASE_PENDING, CreatedAt: timestamppb.Now(),
		}
		s.keys[req.GetIdempotencyKey()] = i
		s.instances = append(s.instances, i)
	}
	return &nstancev1.CreateInstanceResponse{Instance: i}, nil
}

func (s *shard) DeleteInstance(_ context.Context, req *nstancev1.DeleteInstanceRequest) (*nstancev1.DeleteInstanceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := req.GetId()
	if i := s.keys[req.GetIdempotencyKey()]; i != nil {
		id = i.GetId()
	}
	if s.find(id) == nil {
		return nil, rpc.NotFound.Errorf("no such instance %s%s", req.GetId(), req.GetIdempotencyKey())
	}
	s.deleted = append(s.deleted, id)
	return &nstancev1.DeleteInstanceResponse{}, nil
}

func (s *shard) AcknowledgeDrained(
	_ context.Context, req *nstancev1.AcknowledgeDrainedRequest,
) (*nstancev1.AcknowledgeDrainedResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(req.GetId())
	if i == nil {
		return nil, rpc.NotFound.Errorf("no such instance %s", req.GetId())
	}
	if s.refusal != nil {
		return nil, s.refusal
	}
	s.acked = append(s.acked, req.GetId())
	if i.GetDrain() != nil && i.GetDrain().GetAckedAt() == nil {
		i.Drain.AckedAt = timestamppb.Now()
		s.notify(i)
	}
	return &nstancev1.AcknowledgeDrainedResponse{}, nil
}

func (s *shard) find(id string) *nstancev1.InstanceStatus {
	n := slices.IndexFunc(s.instances, func(i *nstancev1.InstanceStatus) bool { return i.GetId() == id })
	if n < 0 {
		return nil
	}
	return s.instances[n]
}

// notify sends an instance to all watchers. s.mu is held.
func (s *shard) notify(i *nstancev1.InstanceStatus) {
	for w := range s.watchers {
		w <- &nstancev1.WatchInstancesResponse{Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Instance: i}
	}
}

// addDraining adds a draining instance.
func (s *shard) addDraining(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := &nstancev1.InstanceStatus{
		Id: id, Tenant: "default", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING, Reason: "scale-down",
		Drain: &nstancev1.DrainStatus{Reason: "scale-down", DeleteAt: timestamppb.Now()},
	}
	s.instances = append(s.instances, i)
	s.notify(i)
}

// removeUnwatched removes an instance while all watches are interrupted, so that no event
// reports it.
func (s *shard) removeUnwatched(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances = slices.DeleteFunc(s.instances, func(i *nstancev1.InstanceStatus) bool { return i.GetId() == id })
	for w := range s.watchers {
		w <- nil
	}
}

func (s *shard) WatchInstances(
	req *nstancev1.WatchInstancesRequest, stream grpc.ServerStreamingServer[nstancev1.WatchInstancesResponse],
) error {
	events := make(chan *nstancev1.WatchInstancesResponse, 100)
	s.mu.Lock()
	if s.watchers == nil {
		s.watchers = map[chan *nstancev1.WatchInstancesResponse]bool{}
	}
	s.watchers[events] = true
	for _, i := range s.instances {
		if req.GetAll() || i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING {
			events <- &nstancev1.WatchInstancesResponse{Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Instance: i}
		}
	}
	events <- &nstancev1.WatchInstancesResponse{Type: nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, events)
	}()
	for {
		select {
		case e := <-events:
			if e == nil {
				return rpc.Unavailable.Errorf("the leader's term in which this stream was opened has ended")
			}
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (s *shard) WatchGroups(_ *nstancev1.WatchGroupsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchGroupsResponse]) error {
	s.mu.Lock()
	s.breaks--
	broken, refused := s.breaks >= 0, s.refusal
	s.mu.Unlock()
	if refused != nil {
		return refused
	}
	if broken {
		return rpc.Unavailable.Errorf("not now")
	}
	for _, g := range []*nstancev1.WatchGroupsResponse{
		{Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Key: "web", Group: web(2, 1)},
		{Type: nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END},
		{Type: nstancev1.EventType_EVENT_TYPE_DELETE, Key: "jobs"},
	} {
		if err := stream.Send(g); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (s *shard) WatchErrors(_ *nstancev1.WatchErrorsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchErrorsResponse]) error {
	for _, m := range []*nstancev1.WatchErrorsResponse{
		{At: timestamppb.Now(), Reason: "ProviderError", Message: "no room", Group: "web"},
		{At: timestamppb.Now(), Reason: "CreatesFailing", Group: "web", Over: true},
	} {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}
