package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The parts of the answer to a leader-only call by a server that is not the leader, as
// google.rpc.ErrorInfo (AIP-193).
const (
	errorDomain       = "nstance.dev"
	reasonNotLeader   = "NOT_LEADER"
	reasonRevoked     = "CERTIFICATE_REVOKED"
	reasonShared      = "IDENTITY_SHARED"
	reasonKeyInUse    = "PUBLIC_KEY_IN_USE"
	reasonUnreachable = "STORAGE_UNREACHABLE"
	metadataLeaderKey = "leader_addr"
	metadataOutageKey = "outage"
)

// notLeader returns UNAVAILABLE with the leader's address for the called service, or without
// one if no leader is known. outage is that of ServerConfig.
func notLeader(leaderAddr, outage string) error {
	message := "this server is not the leader of its shard, and no leader is known yet: try again"
	info := &errdetails.ErrorInfo{Reason: reasonNotLeader, Domain: errorDomain}
	switch {
	case leaderAddr != "":
		message = "this server is not the leader of its shard: use " + leaderAddr
		info.Metadata = map[string]string{metadataLeaderKey: leaderAddr}
	case outage != "":
		message = "this server knows no leader of its shard: " + untouched(outage)
		info.Metadata = map[string]string{metadataOutageKey: outage}
	}
	return withDetails(status.New(codes.Unavailable, message), info)
}

// noChanges returns UNAVAILABLE for a call that would change something during an outage.
func noChanges(outage string) error {
	return withDetails(status.New(codes.Unavailable, untouched(outage)), &errdetails.ErrorInfo{
		Reason: reasonUnreachable, Domain: errorDomain, Metadata: map[string]string{metadataOutageKey: outage},
	})
}

func untouched(outage string) string { return outage + "; nothing was changed: try again later" }

// Outage reports whether err is the answer of a server that can't write to object storage, and that
// therefore refuses a change or knows no leader.
func Outage(err error) bool { return errorInfo(err).GetMetadata()[metadataOutageKey] != "" }

// NotLeader reports whether err is the answer of a server that is not the leader, and returns
// the leader's address if the server knew one that can be dialed.
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

// Revoked reports whether err refuses a certificate that was valid once but whose owner was
// removed. Retrying is of no use.
func Revoked(err error) bool { return errorInfo(err).GetReason() == reasonRevoked }

// Shared reports whether err refuses an agent because another machine uses, and keeps, its
// identity.
func Shared(err error) bool { return errorInfo(err).GetReason() == reasonShared }

// KeyTaken reports whether err refuses public keys because another instance has them. Its
// Violations name the fields with those keys.
func KeyTaken(err error) bool { return errorInfo(err).GetReason() == reasonKeyInUse }

// SubmittedKey returns the field name of an agent's submitted key in errors.
func SubmittedKey(name string) string { return fmt.Sprintf("public_keys[%q]", name) }

// errorInfo returns this project's ErrorInfo in err, or nil.
func errorInfo(err error) *errdetails.ErrorInfo {
	for _, detail := range statusOf(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return info
		}
	}
	return nil
}

// statusOf returns the status in a wrapped error, or nil, which is a valid empty status.
func statusOf(err error) *status.Status {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus()
	}
	return nil
}
