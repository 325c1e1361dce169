package cli_test

import (
	"context"
	"slices"

	"google.golang.org/grpc"
)

// faulty registers a shard's service with its faults.
type faulty struct {
	grpc.ServiceRegistrar
	shard *shard
}

// RegisterService implements grpc.ServiceRegistrar.
func (f faulty) RegisterService(desc *grpc.ServiceDesc, service any) {
	with := *desc
	with.Methods = slices.Clone(desc.Methods)
	for n, m := range desc.Methods {
		with.Methods[n].Handler = func(service any, ctx context.Context, dec func(any) error, around grpc.UnaryServerInterceptor) (any, error) {
			read := func(request any) error {
				if err := dec(request); err != nil {
					return err
				}
				return f.shard.failing(ctx)
			}
			return m.Handler(service, ctx, read, around)
		}
	}
	f.ServiceRegistrar.RegisterService(&with, service)
}

func (s *shard) failing(ctx context.Context) error {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(ctx)
}

// fail has all calls fail with an error, until it is nil.
func (s *shard) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = nil
	if err != nil {
		s.fault = func(context.Context) error { return err }
	}
}

// hang has no call answered.
func (s *shard) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
}
