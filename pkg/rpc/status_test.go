package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/rpc"
)

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err     error
		code    codes.Code
		message string
	}{
		{nil, codes.OK, ""},
		{rpc.Invalid.Errorf("size %d", -1), codes.InvalidArgument, "size -1"},
		{rpc.NotFound.Errorf("no group"), codes.NotFound, "no group"},
		{rpc.Exists.Errorf("a"), codes.AlreadyExists, "a"},
		{rpc.Precondition.Errorf("a"), codes.FailedPrecondition, "a"},
		{rpc.Conflict.Errorf("a"), codes.Aborted, "a"},
		{rpc.Denied.Errorf("a"), codes.PermissionDenied, "a"},
		{rpc.Unauthenticated.Errorf("a"), codes.Unauthenticated, "a"},
		{rpc.CertificateRevoked.Errorf("a"), codes.Unauthenticated, "a"},
		{rpc.IdentityShared.Errorf("a"), codes.FailedPrecondition, "a"},
		{rpc.KeyInUse.Errorf("a"), codes.InvalidArgument, "a"},
		{rpc.Exhausted.Errorf("a"), codes.ResourceExhausted, "a"},
		{rpc.Unavailable.Errorf("a"), codes.Unavailable, "a"},
		{rpc.Unimplemented.Errorf("a"), codes.Unimplemented, "a"},
		{fmt.Errorf("list groups: %w", rpc.NotFound.Errorf("no group")), codes.NotFound, "list groups: no group"},
		{rpc.Unavailable.Errorf("read records: %w", context.DeadlineExceeded), codes.Unavailable, "read records: context deadline exceeded"},
		{rpc.Denied.Errorf("hide: %w", rpc.NotFound.Errorf("it")), codes.PermissionDenied, "hide: it"},
		{fmt.Errorf("wait: %w", context.Canceled), codes.Canceled, "the call was cancelled"},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "the call took longer than its deadline"},
		{status.Error(codes.DataLoss, "as is"), codes.DataLoss, "as is"},
		{errors.New("open /secret/place"), codes.Internal, "internal error: see the server's log"},
	} {
		got := status.Convert(rpc.Status(c.err))
		if got.Code() != c.code || got.Message() != c.message {
			t.Errorf("Status(%v) = %s %q, want %s %q", c.err, got.Code(), got.Message(), c.code, c.message)
		}
	}
}

func TestKindsAreFound(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("outer: %w", rpc.Conflict.Errorf("inner: %w", cause))
	if !errors.Is(err, rpc.Conflict) || !errors.Is(err, cause) || errors.Is(err, rpc.NotFound) {
		t.Errorf("%v is not found by its kind and cause alone", err)
	}
}

func TestViolationsTravel(t *testing.T) {
	want := []rpc.Violation{{Field: "groups.default.web.size", Description: "want 0 or more"}, {Field: "x", Description: "unknown"}}
	err := rpc.Status(fmt.Errorf("refresh: %w", &rpc.ViolationsError{Message: "2 problems", Violations: want}))
	if status.Code(err) != codes.InvalidArgument || !reflect.DeepEqual(rpc.Violations(err), want) {
		t.Fatalf("%v carries %v", err, rpc.Violations(err))
	}
	if got := status.Convert(err).Message(); got != "refresh: 2 problems: groups.default.web.size: want 0 or more; x: unknown" {
		t.Errorf("message %q", got)
	}
	if rpc.Violations(errors.New("other")) != nil || rpc.Violations(nil) != nil {
		t.Error("violations out of nothing")
	}
}

func TestDetailsThatAreNotUTF8(t *testing.T) {
	err := rpc.Status(&rpc.ViolationsError{Message: "bad", Violations: []rpc.Violation{{Field: "\xff", Description: "\xfe"}}})
	if status.Code(err) != codes.InvalidArgument {
		t.Fatalf("got %v, want INVALID_ARGUMENT", err)
	}
}

func TestNotLeaderOfOtherErrors(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.Unavailable, "NOT_LEADER")} {
		if addr, ok := rpc.NotLeader(err); ok || addr != "" {
			t.Errorf("NotLeader(%v) = %q, %v", err, addr, ok)
		}
	}
}

// TestReasons: kinds with the same code are distinguished by their reason.
func TestReasons(t *testing.T) {
	for kind, want := range map[rpc.Kind][3]bool{
		rpc.CertificateRevoked: {true, false, false}, rpc.IdentityShared: {false, true, false}, rpc.KeyInUse: {false, false, true},
		rpc.Precondition: {}, rpc.Invalid: {}, rpc.Unauthenticated: {},
	} {
		err := rpc.Status(kind.Errorf("a"))
		if got := [3]bool{rpc.Revoked(err), rpc.Shared(err), rpc.KeyTaken(err)}; got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}

// TestKeyTakenNamesTheField: the reason is sent with the fields, and violations of another
// kind have no reason.
func TestKeyTakenNamesTheField(t *testing.T) {
	for kind, taken := range map[rpc.Kind]bool{rpc.KeyInUse: true, "": false} {
		want := []rpc.Violation{{Field: "public_key", Description: "another has it"}}
		err := rpc.Status(fmt.Errorf("register: %w", &rpc.ViolationsError{Message: "refused", Violations: want, Kind: kind}))
		if status.Code(err) != codes.InvalidArgument || rpc.KeyTaken(err) != taken || !reflect.DeepEqual(rpc.Violations(err), want) {
			t.Errorf("%q: %v: taken is %t, violations are %v", kind, err, rpc.KeyTaken(err), rpc.Violations(err))
		}
	}
}

func TestFailuresTravel(t *testing.T) {
	want := []rpc.Failure{
		{Type: rpc.GroupRemoved, Subject: "default/web", Description: "deletes 2 instances"},
		{Type: rpc.GroupKept, Subject: "a/b", Description: "kept"},
	}
	err := rpc.Status(fmt.Errorf("refresh: %w", &rpc.PreconditionError{Message: "refused", Failures: want}))
	if status.Code(err) != codes.FailedPrecondition || !reflect.DeepEqual(rpc.Failures(err), want) {
		t.Fatalf("%v carries %v", err, rpc.Failures(err))
	}
	if got := status.Convert(err).Message(); got != "refresh: refused: default/web (deletes 2 instances); a/b (kept)" {
		t.Errorf("message %q", got)
	}
	if rpc.Failures(errors.New("other")) != nil || rpc.Failures(nil) != nil {
		t.Error("failures out of nothing")
	}
}
