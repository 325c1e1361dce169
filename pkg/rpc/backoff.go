package rpc

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// Backoff is how long a client waits between two attempts to reach a server. Even
// the first wait keeps the clients of a restarted server from returning at the
// same moment.
func Backoff() retry.Backoff {
	return retry.Backoff{First: time.Second, Limit: 10 * time.Second, Least: 200 * time.Millisecond}
}

// Sleep waits for d, or until ctx ends, whose error it then returns. What is new
// calls retry.Wait instead, which returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	if retry.Wait(ctx, d) != nil {
		return ctx.Err()
	}
	return nil
}
