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
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(e.Err, &s) {
		text = s.GRPCStatus().Message()
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

// Transient reports whether asking again may help.
func Transient(err error) bool { return status.Code(err) == codes.Unavailable }
