package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
)

// Kind says what sort of failure an error is to the caller of an RPC. A kind is
// an error itself, so errors.Is(err, rpc.NotFound) tests for it, and a service
// makes an error of a kind with its Errorf. Status alone turns kinds into codes.
type Kind string

// The kinds. An error of none of them is INTERNAL, and its text stays in the
// server's log.
const (
	Invalid         Kind = "invalid argument"    // INVALID_ARGUMENT: never valid as it is
	NotFound        Kind = "not found"           // NOT_FOUND: or another tenant's, which looks the same
	Exists          Kind = "already exists"      // ALREADY_EXISTS
	Precondition    Kind = "precondition failed" // FAILED_PRECONDITION: valid, but not in this state
	Conflict        Kind = "conflict"            // ABORTED: another change came first; read again and retry
	Denied          Kind = "permission denied"   // PERMISSION_DENIED: known, but not allowed
	Unauthenticated Kind = "unauthenticated"     // UNAUTHENTICATED: not known, or no longer
	Exhausted       Kind = "resource exhausted"  // RESOURCE_EXHAUSTED: a limit was met
	Unavailable     Kind = "unavailable"         // UNAVAILABLE: try again later
	Unimplemented   Kind = "unimplemented"       // UNIMPLEMENTED
	// CertificateRevoked is UNAUTHENTICATED in the way that Revoked recognises.
	CertificateRevoked Kind = "certificate revoked"
	// IdentityShared is FAILED_PRECONDITION in the way that Shared recognises.
	IdentityShared Kind = "identity shared"
	// KeyInUse is INVALID_ARGUMENT in the way that KeyTaken recognises.
	KeyInUse Kind = "public key in use"
)

func (k Kind) Error() string { return string(k) }

// Errorf makes an error of kind k whose text is the formatted one alone; %w
// keeps the wrapped errors findable. The text is shown to the caller.
func (k Kind) Errorf(format string, args ...any) error {
	return &kindError{kind: k, err: fmt.Errorf(format, args...)}
}

func (k Kind) code() codes.Code {
	switch k {
	case Invalid, KeyInUse:
		return codes.InvalidArgument
	case NotFound:
		return codes.NotFound
	case Exists:
		return codes.AlreadyExists
	case Precondition, IdentityShared:
		return codes.FailedPrecondition
	case Conflict:
		return codes.Aborted
	case Denied:
		return codes.PermissionDenied
	case Unauthenticated, CertificateRevoked:
		return codes.Unauthenticated
	case Exhausted:
		return codes.ResourceExhausted
	case Unavailable:
		return codes.Unavailable
	case Unimplemented:
		return codes.Unimplemented
	default:
		return codes.Internal
	}
}

// reason is what tells a kind from others of its code; empty: the code says it.
func (k Kind) reason() string {
	switch k {
	case CertificateRevoked:
		return reasonRevoked
	case IdentityShared:
		return reasonShared
	case KeyInUse:
		return reasonKeyInUse
	default:
		return ""
	}
}

type kindError struct {
	kind Kind
	err  error
}

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

// Violation is one thing that is wrong with a request or a config.
type Violation struct {
	Field       string // a path such as groups.default.web.size
	Description string
}

// ViolationsError is INVALID_ARGUMENT with every violation as a BadRequest
// field violation.
type ViolationsError struct {
	Message    string
	Violations []Violation
	Kind       Kind // Invalid unless set; KeyInUse is the other that is INVALID_ARGUMENT
}

func (e *ViolationsError) Error() string {
	text := e.Message
	for i, v := range e.Violations {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		text += sep + v.Field + ": " + v.Description
	}
	return text
}

// Unwrap makes it an error of its kind.
func (e *ViolationsError) Unwrap() error { return cmp.Or(e.Kind, Invalid) }

// Violations returns the field violations that a server's answer carries; nil
// when there are none.
func Violations(err error) []Violation {
	var out []Violation
	for _, detail := range statusOf(err).Details() {
		bad, ok := detail.(*errdetails.BadRequest)
		if !ok {
			continue
		}
		for _, v := range bad.GetFieldViolations() {
			out = append(out, Violation{Field: v.GetField(), Description: v.GetDescription()})
		}
	}
	return out
}

// Status turns what a handler returned into what goes over the wire. A status
// stays as it is; a kind becomes its code; the end of a context CANCELED or
// DEADLINE_EXCEEDED. Anything else is INTERNAL without its text, because that
// may name what the caller should not see. The servers made by NewServer apply
// it to every error, so handlers just return theirs.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if s := statusOf(err); s != nil {
		return s.Err()
	}
	var violations *ViolationsError
	if errors.As(err, &violations) {
		return violationsStatus(violations, err.Error())
	}
	var failed *PreconditionError
	if errors.As(err, &failed) {
		return preconditionStatus(failed, err.Error())
	}
	var kind Kind
	if errors.As(err, &kind) {
		return kindStatus(kind, err.Error())
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the call took longer than its deadline")
	default:
		return status.Error(codes.Internal, "internal error: the server's log says more")
	}
}

func kindStatus(kind Kind, message string) error {
	st := status.New(kind.code(), message)
	if reason := kind.reason(); reason != "" {
		return withDetails(st, &errdetails.ErrorInfo{Reason: reason, Domain: errorDomain})
	}
	return st.Err()
}

func violationsStatus(e *ViolationsError, message string) error {
	bad := &errdetails.BadRequest{}
	for _, v := range e.Violations {
		bad.FieldViolations = append(bad.FieldViolations,
			&errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Description})
	}
	details := []protoadapt.MessageV1{bad}
	if reason := e.Kind.reason(); reason != "" {
		details = append(details, &errdetails.ErrorInfo{Reason: reason, Domain: errorDomain})
	}
	return withDetails(status.New(codes.InvalidArgument, message), details...)
}

// withDetails leaves the details out when they can't be encoded, which only text
// that is not UTF-8 brings about: the code and the message matter more.
func withDetails(st *status.Status, details ...protoadapt.MessageV1) error {
	detailed, err := st.WithDetails(details...)
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}
