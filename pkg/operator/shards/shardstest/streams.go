package shardstest

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// WatchGroups implements OperatorServiceServer.
func (s *service) WatchGroups(req *nstancev1.WatchGroupsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchGroupsResponse]) error {
	var seen uint64
	known := map[string]bool{}
	return follow(s, "WatchGroups", req, stream, func(first bool) (all []*nstancev1.WatchGroupsResponse) {
		for _, name := range slices.Sorted(maps.Keys(known)) {
			if s.left[name] > seen {
				delete(known, name)
				all = append(all, &nstancev1.WatchGroupsResponse{Type: nstancev1.EventType_EVENT_TYPE_DELETE, Key: name})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.groups)) {
			if g := s.groups[name]; g.version > seen {
				known[name] = true
				all = append(all, &nstancev1.WatchGroupsResponse{
					Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Key: name, Group: s.groupFor(g, req),
				})
			}
		}
		if first {
			all = append(all, &nstancev1.WatchGroupsResponse{Type: nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END})
		}
		seen = s.version
		return all
	})
}

// WatchInstances implements OperatorServiceServer. It does not support resuming.
func (s *service) WatchInstances(
	req *nstancev1.WatchInstancesRequest, stream grpc.ServerStreamingServer[nstancev1.WatchInstancesResponse],
) error {
	var seen uint64
	return follow(s, "WatchInstances", req, stream, func(first bool) (all []*nstancev1.WatchInstancesResponse) {
		for _, i := range s.byAge() {
			leaves := !i.active() && (i.Phase != deleted || !first)
			if i.version > seen && (req.GetAll() || leaves) {
				all = append(all, &nstancev1.WatchInstancesResponse{
					Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Instance: proto.CloneOf(i.InstanceStatus),
				})
			}
		}
		if first {
			all = append(all, &nstancev1.WatchInstancesResponse{Type: nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END})
		}
		seen = s.version
		return all
	})
}

// WatchErrors implements OperatorServiceServer.
func (s *service) WatchErrors(req *nstancev1.WatchErrorsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchErrorsResponse]) error {
	seen := 0
	return follow(s, "WatchErrors", req, stream, func(first bool) []*nstancev1.WatchErrorsResponse {
		all := s.problems
		if !first {
			all = s.said[seen:]
		}
		seen = len(s.said)
		return slices.Clone(all)
	})
}

// Problem makes the shard report a problem, which lasts until ProblemOver.
func (s *Shard) Problem(reason, group, instance, message string) {
	s.problem(&nstancev1.WatchErrorsResponse{Reason: reason, Group: group, InstanceId: instance, Message: message})
}

// ProblemOver makes the shard report the end of a problem.
func (s *Shard) ProblemOver(reason, group, instance string) {
	s.problem(&nstancev1.WatchErrorsResponse{Reason: reason, Group: group, InstanceId: instance, Over: true})
}

func (s *state) problem(p *nstancev1.WatchErrorsResponse) {
	s.change(func(now time.Time) {
		p.At = timestamppb.New(now)
		s.said = append(s.said, p)
		s.problems = slices.DeleteFunc(slices.Clone(s.problems), func(o *nstancev1.WatchErrorsResponse) bool {
			return o.GetReason() == p.GetReason() && o.GetGroup() == p.GetGroup() && o.GetInstanceId() == p.GetInstanceId()
		})
		if !p.GetOver() {
			s.problems = append(s.problems, p)
		}
	})
}
