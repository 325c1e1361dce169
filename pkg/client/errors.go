package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/rpc"
)

// ShardError is an error of one shard.
type ShardError struct {
	Shard string
	Err   error
}

// Error says in a sentence what happened: the server's message, without the protocol's prefix, or
// what an error of gRPC itself means. Further lines of a message are indented: none can pass for
// the beginning of another error.
func (e *ShardError) Error() string {
	text := said(e.Err)
	switch {
	case rpc.Outage(e.Err): // says it all
	case errors.Is(e.Err, context.DeadlineExceeded):
		text = "no leader answered in time: " + text
	case errors.Is(e.Err, context.Canceled):
		text = "interrupted before it answered"
	}
	if errors.Is(e.Err, rpc.ErrEarlierAttempt) {
		text += "; " + rpc.ErrEarlierAttempt.Error()
	}
	return fmt.Sprintf("shard %s: %s", e.Shard, strings.ReplaceAll(text, "\n", "\n  "))
}

// said returns what an answer says.
func said(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return err.Error()
	}
	text := s.GRPCStatus().Message()
	switch code := s.GRPCStatus().Code(); {
	case strings.HasPrefix(text, "unexpected HTTP status code"): // gRPC's text
		return "a proxy or another web server answers at its address (" + text + "): correct the address"
	case code == codes.Unimplemented:
		return "the server does not have this call at its address: use its operator address (port 8993 by default; 8992 is for registration, " +
			"8994 for agents), or a server and a program of the same version"
	case code == codes.ResourceExhausted && strings.HasPrefix(text, "grpc: received message larger"):
		return "the answer is too large: ask for less, such as one group"
	case code == codes.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded):
		return "the call took too long: raise --timeout, and see the server's log"
	case text == "":
		return fmt.Sprintf("the server answered %s without a reason: see its log", code)
	case strings.HasPrefix(text, "error reading from server"), strings.HasPrefix(text, "connection error"), // gRPC's texts
		strings.HasPrefix(text, "closing transport"), strings.HasPrefix(text, "the connection is draining"):
		return "the connection was lost: the server may be restarting (" + text + ")"
	}
	return text
}

// Unwrap returns the error of the call.
func (e *ShardError) Unwrap() error { return e.Err }

// Transient reports whether a retry may succeed.
func Transient(err error) bool { return status.Code(err) == codes.Unavailable }
