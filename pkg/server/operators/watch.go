package operators

import (
	"context"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// SendLimit is how long a watch may wait for its reader to take one event.
const SendLimit = 30 * time.Second

// WatchGroups sends the caller's groups, a SNAPSHOT_END, and then every change.
func (s *Service) WatchGroups(_ *nstancev1.WatchGroupsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchGroupsResponse]) error {
	return s.watch(stream, func(w *Watches, tenant string, end ends) error {
		sub := w.groups.Subscribe(func(g *nstancev1.GroupStatus) bool { return g.GetTenant() == tenant })
		defer sub.Close()
		return pump(stream, end, sub, func(e broadcast.Item[fleet.GroupKey, *nstancev1.GroupStatus]) error {
			return stream.Send(groupEvent(e))
		})
	})
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

// WatchErrors sends the problems that last, and then every new one: those of the
// caller's groups, and for tenant default those of the shard.
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

// watch runs one watch of the term, as long as the term lasts and the caller
// has not too many of them.
func (s *Service) watch(stream grpc.ServerStream, run func(w *Watches, tenant string, end ends) error) error {
	shard, err := s.cfg.Shard()
	if err != nil {
		return err
	}
	caller, ok := rpc.CallerFrom(stream.Context())
	if !ok {
		return rpc.Unauthenticated.Errorf("no client certificate")
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

// ends are what ends a watch beside its reader.
type ends struct {
	term <-chan struct{}
	cut  <-chan struct{} // its operator is not let in any more
}

var (
	errOver = errors.New("the term is over")
	errCut  = errors.New("the operator was removed")
)

// moved is the answer to a stream whose term is over. This server may even lead
// again; then the caller is to come back to it.
func (s *Service) moved() error {
	if _, err := s.cfg.Shard(); err != nil {
		return err
	}
	return rpc.Unavailable.Errorf("the term that this stream was opened in is over")
}

// source is what a watch reads from.
type source[T any] interface {
	Ready() <-chan struct{}
	Take() (item T, ok bool, err error)
}

// pump sends what a source says until the reader is gone or too slow, or
// something else ends the watch. Headers go out first: who has them misses nothing from then on.
func pump[T any](stream grpc.ServerStream, end ends, from source[T], send func(T) error) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	ctx := stream.Context()
	for {
		item, ok, err := from.Take()
		switch {
		case errors.Is(err, broadcast.ErrClosed):
			return errOver
		case err != nil:
			return rpc.Exhausted.Errorf("this watch is cut off, its reader is %w: open it anew, and read it faster", err)
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

// sendWithin sends one message. A reader that takes none holds up its Send for
// as long as the stream lives, so it is left behind: it returns when the stream
// has ended, which the return of the stream's handler brings about.
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
		return rpc.Exhausted.Errorf("this watch took no event for %s: open it anew, and read it faster", SendLimit)
	}
}
