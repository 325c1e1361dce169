package rpc

import (
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// SteadyAfter is how long a stream must have been open for its failure to reset the back-off.
const SteadyAfter = 10 * time.Second

// RefusedWait is how long a client waits, besides the back-off, after a server refused its
// certificate. Retrying more often does not help.
const RefusedWait = time.Minute

// Backoff is the back-off between attempts to reach a server. Even the first delay is
// jittered, so that the clients of a restarted server do not reconnect at the same moment.
func Backoff() retry.Backoff {
	return retry.Backoff{First: time.Second, Limit: 10 * time.Second, Least: 200 * time.Millisecond}
}
