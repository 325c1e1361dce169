package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// registrar registers unary methods as streams of one message, because gRPC reads the whole
// message of a unary method before it calls an interceptor.
type registrar struct {
	*grpc.Server
	guard *guard
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	streams := *desc
	streams.Methods, streams.Streams = nil, nil
	for _, m := range desc.Methods {
		r.guard.served["/"+desc.ServiceName+"/"+m.MethodName] = true
		r.guard.unary["/"+desc.ServiceName+"/"+m.MethodName] = true
		// As a client stream, so that the message is available as soon as it arrives, not only
		// once the client has closed its side.
		streams.Streams = append(streams.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: oneMessage(m), ClientStreams: true})
	}
	for _, s := range desc.Streams {
		r.guard.served["/"+desc.ServiceName+"/"+s.StreamName] = true
		if s.ClientStreams {
			r.guard.clientStream["/"+desc.ServiceName+"/"+s.StreamName] = true
		}
		streams.Streams = append(streams.Streams, s)
	}
	r.Server.RegisterService(&streams, impl)
}

func oneMessage(m grpc.MethodDesc) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		answer, err := m.Handler(srv, stream.Context(), stream.RecvMsg, nil)
		if err != nil {
			return err
		}
		return stream.SendMsg(answer)
	}
}

// unserved handles calls to unknown methods. The guard refuses them first, having no row for
// them.
func unserved(any, grpc.ServerStream) error { return Unimplemented.Errorf("not served here") }

// servedStream is a stream as its handler sees it.
type servedStream struct {
	grpc.ServerStream
	ctx   context.Context
	guard *guard
	call  *call
	begun bool // a message has arrived
}

// Context returns the context with the caller.
func (s *servedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *servedStream) RecvMsg(m any) error {
	if s.begun || s.guard.clientStream[s.call.method] {
		return s.next(m)
	}
	s.begun = true
	one := &measured{message: m}
	received := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				received <- fmt.Errorf("read the message: panic: %v", p)
			}
		}()
		received <- s.ServerStream.RecvMsg(one)
	}()
	limit := s.guard.config.Limits.MessageTimeout
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-received:
		if err = s.firstError(one, err); err == nil && !s.call.unary {
			s.call.intake.free(messageHeader + one.length)
		}
		return err
	case <-s.call.intake.over:
		return s.exhausted()
	case <-timer.C:
		return fmt.Errorf("the message did not arrive within %s: %w", limit, context.DeadlineExceeded)
	}
}

// firstError returns the error for an unreadable message: it is the caller's fault, not a
// failure of the server.
func (s *servedStream) firstError(one *measured, err error) error {
	if errors.Is(err, io.EOF) {
		return noMessage(s.call.method)
	}
	return readError(one, err)
}

func noMessage(method string) error {
	return Invalid.Errorf("the call has no message: %s needs one", method)
}

// readError converts the error of reading a message. For an invalid message frame (its length
// or compressed flag), gRPC has already answered INTERNAL, so that kind is only logged.
func readError(one *measured, err error) error {
	switch {
	case err == nil && one.err != nil:
		return Invalid.Errorf("the message can't be decoded: %w", one.err)
	case status.Code(err) == codes.Internal:
		return Invalid.Errorf("the message can't be read: %s", status.Convert(err).Message())
	default:
		return err
	}
}

// next reads one of many messages.
func (s *servedStream) next(m any) error {
	one := &measured{message: m}
	err := s.ServerStream.RecvMsg(one)
	if err == nil {
		s.call.intake.free(messageHeader + one.length)
	}
	if err = readError(one, err); err == nil {
		return nil
	}
	select {
	case <-s.call.intake.over:
		return s.exhausted()
	default:
		return err
	}
}

// SendMsg implements grpc.ServerStream. A unary call's answer is held until its caller reads
// it; of a stream's messages, gRPC holds at most 64 KiB.
func (s *servedStream) SendMsg(m any) error {
	if answer, ok := m.(proto.Message); ok && s.call.unary && !s.call.intake.charge(proto.Size(answer)) {
		limits := s.guard.config.Limits
		return Exhausted.Errorf("too many bytes of calls and unread answers are in progress: "+
			"at most %d per identity and %d in total: "+
			"read the answers and try again", limits.MaxHeld, limits.MaxHeldByAll)
	}
	return s.ServerStream.SendMsg(m)
}

func (s *servedStream) exhausted() error {
	limits := s.guard.config.Limits
	return Exhausted.Errorf("too many bytes of messages are in progress: "+
		"at most %d per identity and %d in total: try again later",
		limits.MaxHeld, limits.MaxHeldByAll)
}

// messageHeader is the length of the prefix of each message in a stream, in bytes.
const messageHeader = 5

// measured is a message to be read along with its length.
type measured struct {
	message any
	length  int
	err     error // from decoding
}

// measuringCodec is gRPC's own codec, and records message lengths.
type measuringCodec struct{ encoding.CodecV2 }

func newMeasuringCodec() measuringCodec {
	return measuringCodec{encoding.GetCodecV2(encodingproto.Name)}
}

// Unmarshal implements encoding.CodecV2. It stores a decoding error instead of returning it,
// because gRPC would answer INTERNAL before the handler could answer.
func (c measuringCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*measured)
	if !ok {
		return errors.New("message of an unexpected type")
	}
	m.length = data.Len()
	m.err = Aside(func() error { return c.CodecV2.Unmarshal(data, m.message) })
	return nil
}
