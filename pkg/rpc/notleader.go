package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The words of the answer that a server gives to a call that only the leader
// may answer, as google.rpc.ErrorInfo (AIP-193).
const (
	errorDomain       = "nstance.dev"
	reasonNotLeader   = "NOT_LEADER"
	reasonRevoked     = "CERTIFICATE_REVOKED"
	reasonShared      = "IDENTITY_SHARED"
	reasonKeyInUse    = "PUBLIC_KEY_IN_USE"
	metadataLeaderKey = "leader_addr"
)

// notLeader is UNAVAILABLE with the leader's address for the called service,
// which is empty while no leader is known.
func notLeader(leaderAddr string) error {
	message := "this server does not lead its shard, and no leader is known yet: try again"
	info := &errdetails.ErrorInfo{Reason: reasonNotLeader, Domain: errorDomain}
	if leaderAddr != "" {
		message = "this server does not lead its shard: ask " + leaderAddr
		info.Metadata = map[string]string{metadataLeaderKey: leaderAddr}
	}
	return withDetails(status.New(codes.Unavailable, message), info)
}

// NotLeader reports whether err is the answer of a server that does not lead,
// and the leader's address as far as that server knew one that can be dialed.
func NotLeader(err error) (addr string, ok bool) {
	info := errorInfo(err)
	if info.GetReason() != reasonNotLeader {
		return "", false
	}
	addr, parseErr := ParseAddr(info.GetMetadata()[metadataLeaderKey])
	if parseErr != nil {
		return "", true
	}
	return addr, true
}

// Revoked reports whether err is the answer to a certificate that was valid
// once but whose owner is no longer welcome. Trying again is of no use.
func Revoked(err error) bool { return errorInfo(err).GetReason() == reasonRevoked }

// Shared reports whether err refuses an agent because another machine has its identity
// too, and keeps it.
func Shared(err error) bool { return errorInfo(err).GetReason() == reasonShared }

// KeyTaken reports whether err refuses public keys because another instance has them. Its
// Violations name the fields that hold those keys.
func KeyTaken(err error) bool { return errorInfo(err).GetReason() == reasonKeyInUse }

// SubmittedKey is the field of a key that an agent submits, as errors name it.
func SubmittedKey(name string) string { return fmt.Sprintf("public_keys[%q]", name) }

// errorInfo finds this project's ErrorInfo in err; nil when there is none.
func errorInfo(err error) *errdetails.ErrorInfo {
	for _, detail := range statusOf(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return info
		}
	}
	return nil
}

// statusOf digs the status out of a wrapped error; nil, which is a valid empty
// status, when it has none.
func statusOf(err error) *status.Status {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus()
	}
	return nil
}
