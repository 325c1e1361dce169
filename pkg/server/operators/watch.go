package operators

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// SendLimit is how long a watch waits for its reader to accept one event.
const SendLimit = 30 * time.Second

// WatchGroups sends the caller's groups, a SNAPSHOT_END, and then every change.
func (s *Service) WatchGroups(req *nstancev1.WatchGroupsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchGroupsResponse]) error {
	return s.watch(stream, func(w *Watches, tenant string, end ends) error {
		sub := w.groups.Subscribe(func(g *nstancev1.GroupStatus) bool { return g.GetTenant() == tenant })
		defer sub.Close()
		return pump(stream, end, sub, func(e broadcast.Item[fleet.GroupKey, *nstancev1.GroupStatus]) error {
			e.Value = without(e.Value, req)
			return stream.Send(groupEvent(e))
		})
	})
}

// without returns a group without what a request omits. It shares everything else, since it is
// shared with other watches and must not be changed.
func without(g *nstancev1.GroupStatus, req proto.Message) *nstancev1.GroupStatus {
	var omitted []protoreflect.Name
	if r, ok := req.(interface{ GetOmitInstances() bool }); ok && r.GetOmitInstances() && len(g.GetInstances()) > 0 {
		omitted = append(omitted, "instances")
	}
	if r, ok := req.(interface{ GetOmitVars() bool }); ok && r.GetOmitVars() && g.GetVars() != nil {
		omitted = append(omitted, "vars")
	}
	if len(omitted) == 0 {
		return g
	}
	to := &nstancev1.GroupStatus{}
	fields := to.ProtoReflect()
	g.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if !slices.Contains(omitted, field.Name()) {
			fields.Set(field, value)
		}
		return true
	})
	return to
}

func groupEvent(e broadcast.Item[fleet.GroupKey, *nstancev1.GroupStatus]) *nstancev1.WatchGroupsResponse {
	switch {
	case e.End:
		return &nstancev1.WatchGroupsResponse{Type: nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END}
	case e.Gone:
		return &nstancev1.WatchGroupsResponse{Type: nstancev1.EventType_EVENT_TYPE_DELETE, Key: e.Key.Name}
	default:
		return &nstancev1.WatchGroupsResponse{Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Key: e.Key.Name, Group: e.Value}
	}
}

// WatchErrors sends the ongoing problems, and then every new one: those of the caller's
// groups, and for tenant default those of the shard.
func (s *Service) WatchErrors(_ *nstancev1.WatchErrorsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchErrorsResponse]) error {
	return s.watch(stream, func(w *Watches, tenant string, end ends) error {
		reader := w.cfg.Shard.Problems.Follow(tenant)
		defer reader.Close()
		return pump(stream, end, reader, func(p fleet.Problem) error {
			return stream.Send(&nstancev1.WatchErrorsResponse{
				At: timestamppb.New(p.At), Reason: p.Reason, Message: p.Message, Group: p.Group.Name, InstanceId: string(p.Instance), Over: p.Over,
			})
		})
	})
}

// watch runs a watch until the term ends, unless the caller has too many open.
func (s *Service) watch(stream grpc.ServerStream, run func(w *Watches, tenant string, end ends) error) error {
	shard, caller, err := s.caller(stream.Context())
	if err == nil {
		err = shard.Admit(caller.Tenant)
	}
	if err != nil {
		return err
	}
	w := shard.Watches
	leave, err := s.streams.join(caller.Tenant, caller.ID)
	if err != nil {
		return err
	}
	defer leave()
	cut, part, err := w.cfg.Join(stream.Context(), caller)
	if err != nil {
		return err
	}
	defer part()
	switch err = run(w, caller.Tenant, ends{term: w.cfg.Done, cut: cut}); {
	case errors.Is(err, errOver):
		return s.moved()
	case errors.Is(err, errCut):
		return rpc.CertificateRevoked.Errorf("operator %s was removed", caller.ID)
	default:
		return err
	}
}

// ends holds what ends a watch, other than its reader.
type ends struct {
	term <-chan struct{}
	cut  <-chan struct{} // closed when its operator is refused
}

var (
	errOver = errors.New("the leader's term has ended")
	errCut  = errors.New("the operator was removed")
)

// moved is the answer to a stream whose term is over. If this server leads again, the caller
// is to reconnect to it.
func (s *Service) moved() error {
	if _, err := s.cfg.Shard(); err != nil {
		return err
	}
	return rpc.Unavailable.Errorf("the leader's term in which this stream was opened has ended")
}

// source is what a watch reads from.
type source[T any] interface {
	Ready() <-chan struct{}
	Next() (item T, ok bool, err error)
}

// pump sends the items of a source until the reader is gone or too slow, or the watch is
// ended. Headers are sent first: a reader that has received them misses no later change.
func pump[T any](stream grpc.ServerStream, end ends, from source[T], send func(T) error) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	ctx := stream.Context()
	for {
		item, ok, err := from.Next()
		switch {
		case errors.Is(err, broadcast.ErrClosed):
			return errOver
		case err != nil:
			return rpc.Exhausted.Errorf("watch ended, its reader is %w: open it again and read faster", err)
		case ok:
			if err := sendWithin(ctx, end, func() error { return send(item) }); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.term:
			return errOver
		case <-end.cut:
			return errCut
		case <-from.Ready():
		}
	}
}

// sendWithin sends one message. A reader that does not read blocks Send until the stream ends,
// so its goroutine is left behind: it returns when the stream's handler has returned.
func sendWithin(ctx context.Context, end ends, send func() error) error {
	sent := make(chan error, 1)
	go func() { sent <- send() }()
	limit := time.NewTimer(SendLimit)
	defer limit.Stop()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-end.term:
		return errOver
	case <-end.cut:
		return errCut
	case <-limit.C:
		return rpc.Exhausted.Errorf("watch ended, its reader accepted no event for %s: open it again and read faster", SendLimit)
	}
}
