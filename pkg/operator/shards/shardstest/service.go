package shardstest

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// service answers calls from the shard's state, subject to its faults.
type service struct {
	nstancev1.UnimplementedOperatorServiceServer
	*state
	faults *faults
}

// serve answers a unary call.
func serve[Q proto.Message, A any](
	ctx context.Context, s *service, method string, req Q, do func(now time.Time) (*A, error),
) (*A, error) {
	if err := s.faults.enter(ctx, method, req); err != nil {
		return nil, err
	}
	s.mu.Lock()
	answer, err := do(time.Now())
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := s.faults.leave(ctx, method); err != nil {
		return nil, err
	}
	return answer, nil
}

// follow answers a stream: look returns what to send, after each change. It is called with the
// shard's lock held.
func follow[A any](s *service, method string, req proto.Message, stream grpc.ServerStreamingServer[A], look func(first bool) []*A) error {
	ctx := stream.Context()
	if err := s.faults.enter(ctx, method, req); err != nil {
		return err
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for first := true; ; first = false {
		if err := s.faults.speak(ctx); err != nil {
			return err
		}
		changed := s.changed.next()
		s.mu.Lock()
		all := look(first)
		s.mu.Unlock()
		for _, m := range all {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
