package rpc

import (
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// SteadyAfter is how long a stream must have held for the next break to count as
// the first one.
const SteadyAfter = 10 * time.Second

// Backoff is how long a client waits between two attempts to reach a server. Even
// the first wait keeps the clients of a restarted server from returning at the
// same moment.
func Backoff() retry.Backoff {
	return retry.Backoff{First: time.Second, Limit: 10 * time.Second, Least: 200 * time.Millisecond}
}
