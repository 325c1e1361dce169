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

// Kind classifies an error for the caller of an RPC. A kind is itself an error, so
// errors.Is(err, rpc.NotFound) tests for it, and services create errors of a kind with Errorf.
// Only Status converts kinds to codes.
type Kind string

// The kinds. An error of no kind is INTERNAL, and its text is only written to the server's
// log.
const (
	Invalid         Kind = "invalid argument"    // INVALID_ARGUMENT: never valid
	NotFound        Kind = "not found"           // NOT_FOUND: also if it is another tenant's
	Exists          Kind = "already exists"      // ALREADY_EXISTS
	Precondition    Kind = "precondition failed" // FAILED_PRECONDITION: valid, but not in the current state
	Conflict        Kind = "conflict"            // ABORTED: a concurrent change came first; read again and retry
	Denied          Kind = "permission denied"   // PERMISSION_DENIED: authenticated, but not allowed
	Unauthenticated Kind = "unauthenticated"     // UNAUTHENTICATED: unknown, or removed
	Exhausted       Kind = "resource exhausted"  // RESOURCE_EXHAUSTED: over a limit
	Unavailable     Kind = "unavailable"         // UNAVAILABLE: try again later
	Unimplemented   Kind = "unimplemented"       // UNIMPLEMENTED
	// CertificateRevoked is an UNAUTHENTICATED that Revoked recognises.
	CertificateRevoked Kind = "certificate revoked"
	// IdentityShared is a FAILED_PRECONDITION that Shared recognises.
	IdentityShared Kind = "identity shared"
	// TenantUnknown is a FAILED_PRECONDITION that the audit records for reads, too.
	TenantUnknown Kind = "tenant not declared"
	// KeyInUse is an INVALID_ARGUMENT that KeyTaken recognises.
	KeyInUse Kind = "public key in use"
)

func (k Kind) Error() string { return string(k) }

// Errorf returns an error of kind k with the formatted text; %w wraps errors as in fmt.Errorf.
// The text is shown to the caller.
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
	case Precondition, IdentityShared, TenantUnknown:
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

// reason distinguishes kinds with the same code; empty: the code suffices.
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

// Violation is one invalid field of a request or a config.
type Violation struct {
	Field       string `json:"field"` // a path such as groups.default.web.size
	Description string `json:"description"`
}

// ViolationsError is INVALID_ARGUMENT with every violation as a BadRequest field violation.
type ViolationsError struct {
	Message    string
	Violations []Violation
	Kind       Kind // default Invalid; or KeyInUse, which is INVALID_ARGUMENT too
}

// InvalidRequest refuses a request with invalid fields.
func InvalidRequest(violations ...Violation) error {
	return &ViolationsError{Message: "invalid request", Violations: violations}
}

// InvalidField refuses a request with one invalid field.
func InvalidField(field, description string) error {
	return InvalidRequest(Violation{field, description})
}

// KeysInUse refuses public keys that other instances have, without naming those instances. use is
// what to do with a new key.
func KeysInUse(use string, fields ...string) error {
	out := &ViolationsError{Message: "invalid request", Kind: KeyInUse}
	for _, field := range fields {
		out.Violations = append(out.Violations, Violation{field, "this key belongs to another instance: generate a new key and " + use})
	}
	return out
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

// Violations returns the field violations in a server's answer, or nil.
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

// Status converts a handler's error to a gRPC status. A status is returned unchanged; a kind
// becomes its code; a context error becomes CANCELED or DEADLINE_EXCEEDED. Anything else
// becomes INTERNAL without its text, which may contain what the caller should not see. Servers
// from NewServer apply it to every error, so handlers just return theirs.
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
		return status.Error(codes.Internal, "internal error: see the server's log")
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

// withDetails omits the details if they can't be encoded, which only happens with text that is
// not UTF-8: the code and the message matter more.
func withDetails(st *status.Status, details ...protoadapt.MessageV1) error {
	detailed, err := st.WithDetails(details...)
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}
