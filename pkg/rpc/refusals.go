package rpc

import (
	"errors"

	"google.golang.org/grpc/codes"
)

// refused reports whether an answer refuses its caller: for its identity or its tenant, for exceeding
// limits, or, if it has no certificate or the call changes something, for its request.
// NOT_LEADER and other server-side errors are not refusals.
func (c *call) refused(code codes.Code, err error) bool {
	switch code {
	case codes.PermissionDenied, codes.ResourceExhausted:
		return true
	case codes.Unauthenticated:
		// An open stream that ends with this code is of an instance that was just removed.
		return !c.admitted || c.unary
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		return c.caller == nil || c.changes || errors.Is(err, TenantUnknown)
	default:
		return false
	}
}

// mayHaveLanded reports whether it is unknown if a call that changes something succeeded.
func (c *call) mayHaveLanded(code codes.Code, answer error) bool {
	if !c.changes || !c.admitted {
		return false
	}
	_, notLeader := NotLeader(answer)
	return !notLeader && (code == codes.Unavailable || code == codes.Canceled || code == codes.DeadlineExceeded)
}
