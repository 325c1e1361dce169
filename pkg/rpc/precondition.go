package rpc

import (
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Failure is one failed precondition of a request.
type Failure struct {
	Type        string // in capitals, such as GROUP_REMOVED
	Subject     string // what it is about, such as default/web
	Description string
}

// GroupManaged is the type of a failed precondition of a change of a group: something else manages it.
const GroupManaged = "GROUP_MANAGED"

// Types of failed preconditions of a config refresh.
const (
	GroupRemoved = "GROUP_REMOVED" // the config removes the group, and that was not accepted
	GroupEmptied = "GROUP_EMPTIED" // the config sets the group's size to 0, and that was not accepted
	// GroupSizeUnset: the config no longer sets the group's size, the default is smaller, and that
	// was not accepted.
	GroupSizeUnset = "GROUP_SIZE_UNSET"
	GroupKept      = "GROUP_KEPT" // the group's removal was accepted, but the config keeps it
)

// PreconditionError is FAILED_PRECONDITION with every failure as a violation of
// google.rpc.PreconditionFailure.
type PreconditionError struct {
	Message  string
	Failures []Failure
}

func (e *PreconditionError) Error() string {
	var text strings.Builder // of thousands of failures, if a config removes as many groups
	text.WriteString(e.Message)
	for i, f := range e.Failures {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&text, "%s%s (%s)", sep, f.Subject, f.Description)
	}
	return text.String()
}

// Unwrap makes it an error of kind Precondition.
func (e *PreconditionError) Unwrap() error { return Precondition }

// Failures returns the failed preconditions in a server's answer, or nil.
func Failures(err error) []Failure {
	var out []Failure
	for _, detail := range statusOf(err).Details() {
		failure, ok := detail.(*errdetails.PreconditionFailure)
		if !ok {
			continue
		}
		for _, v := range failure.GetViolations() {
			out = append(out, Failure{Type: v.GetType(), Subject: v.GetSubject(), Description: v.GetDescription()})
		}
	}
	return out
}

func preconditionStatus(e *PreconditionError, message string) error {
	detail := &errdetails.PreconditionFailure{}
	for _, f := range e.Failures {
		detail.Violations = append(detail.Violations,
			&errdetails.PreconditionFailure_Violation{Type: f.Type, Subject: f.Subject, Description: f.Description})
	}
	return withDetails(status.New(codes.FailedPrecondition, message), detail)
}
