package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ShardError is what went wrong with one shard.
type ShardError struct {
	Shard string
	Err   error
}

// Error is for people: what the server said, without the words of the protocol.
func (e *ShardError) Error() string {
	text := e.Err.Error()
	if s := statusOf(e.Err); s != nil {
		text = s.Message()
	}
	switch {
	case errors.Is(e.Err, context.DeadlineExceeded):
		text = "no leader answered in time: " + text
	case errors.Is(e.Err, context.Canceled):
		text = "interrupted: " + text
	}
	return fmt.Sprintf("shard %s: %s", e.Shard, text)
}

// Unwrap returns the error as the call returned it.
func (e *ShardError) Unwrap() error { return e.Err }

// Code is the gRPC code of what went wrong with a shard.
func Code(err error) codes.Code {
	if s := statusOf(err); s != nil {
		return s.Code()
	}
	return codes.Unknown
}

// Transient reports whether asking again may help.
func Transient(err error) bool { return Code(err) == codes.Unavailable }

// statusOf finds the first status in err; nil when there is none.
func statusOf(err error) *status.Status {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus()
	}
	return nil
}
