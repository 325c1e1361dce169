package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// errorRow says what a code means. A code that ends with * stands for all that begin so.
type errorRow struct {
	code   string
	status int // of HTTP; 0: any; 4: those from 400 to 499
	kind   error
}

// The codes that decide how Create goes on.
const (
	codeMismatch   = "IdempotentParameterMismatch"
	codeTerminated = "IdempotentInstanceTerminated"
)

const codeInvalidTarget = "InvalidTarget"

// codeNone is the SDK's word for a reply without a code: it may be of something between
// here and AWS, and of a call that came through.
const codeNone = "UnknownError"

// errorTable is what EC2 and Elastic Load Balancing refuse calls with. The first row that
// fits decides. A code without a row, and every 5xx without one, is temporary: nobody
// knows what was made.
func errorTable() []errorRow {
	var rows []errorRow
	add := func(kind error, status int, codes ...string) {
		for _, code := range codes {
			rows = append(rows, errorRow{code, status, kind})
		}
	}
	// Neither is a kind: Create looks at what there is.
	add(nil, 0, codeMismatch, codeTerminated)
	// Nor is what is over with other keys, or with a clock that is right again.
	add(nil, 0, "ExpiredToken*", "RequestExpired", "InvalidSecurity.RequestHasExpired")
	add(provider.ErrUnauthorized, 401, codeNone)
	add(provider.ErrUnauthorized, 403, codeNone)
	add(provider.ErrThrottled, 429, codeNone)
	add(nil, 0, codeNone)
	add(provider.ErrSubnetFull, 0, "InsufficientFreeAddressesInSubnet", "InsufficientCidrBlocks")
	// These are the account's or the zone's. Lack of capacity is a 500.
	add(provider.ErrQuota, 0, "InsufficientInstanceCapacity", "InsufficientCapacity*", "InsufficientHostCapacity",
		"InsufficientReservedInstanceCapacity", "InsufficientVolumeCapacity", "InsufficientAddressCapacity", "ReservationCapacityExceeded",
		"UnfulfillableCapacity", "InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow",
		"MarketCapacityOversubscribed", "RequestResourceCountExceeded", "ResourceCountExceeded", "ResourceCountLimitExceeded",
		"HostLimitExceeded", "PlacementGroupLimitExceeded",
		"VolumeLimitExceeded", "MaxIOPSLimitExceeded", "NetworkInterfaceLimitExceeded", "AddressLimitExceeded", "PrivateIpAddressLimitExceeded",
		"Unsupported", "PendingVerification", "TooManyTargets", "TooManyRegistrationsForTargetId")
	add(provider.ErrThrottled, 0, "RequestLimitExceeded", "Throttling*", "ThrottledException", "RequestThrottled*",
		"TooManyRequestsException", "EC2ThrottledException", "SlowDown")
	add(provider.ErrThrottled, 429, "*")
	add(provider.ErrUnauthorized, 0, "UnauthorizedOperation", "AuthFailure*", "AccessDenied*", "InvalidClientTokenId", "SignatureDoesNotMatch",
		"IncompleteSignature", "MissingAuthenticationToken", "InvalidSecurity", "OptInRequired", "Blocked", "AccountDisabled",
		"UnrecognizedClientException")
	add(provider.ErrNotFound, 4, "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "TargetGroupNotFound")
	add(provider.ErrInvalid, 4, "Invalid*", "Missing*", "Unknown*", "Malformed*", "Unsupported*",
		"NotSupported", "InstanceCreditSpecification.NotSupported", "VolumeTypeNotAvailableInZone", "TagPolicyViolation", "NoSuchEntity",
		"OperationNotPermitted", "TagLimitExceeded",
		"FilterLimitExceeded", "SecurityGroupLimitExceeded", "SecurityGroupsPerInstanceLimitExceeded", "AttachmentLimitExceeded",
		"VPCIdNotSpecified", "VPCResourceNotSpecified", "EncryptedVolumesNotSupported", "DefaultSubnetDoesNotExist", "NoSuchVersion",
		"ValidationError", "IncorrectState", "IncorrectInstanceState", "NonEBSInstance", "DryRunOperation")
	return rows
}

func (r errorRow) fits(code string, status int) bool {
	prefix, open := strings.CutSuffix(r.code, "*")
	if code != r.code && (!open || !strings.HasPrefix(code, prefix)) {
		return false
	}
	return r.status == 0 || r.status == status || r.status == status/100
}

// kindOf is the kind of a refusal, nil when it is none: the outcome is unknown.
func kindOf(code string, status int) error {
	for _, row := range errorTable() {
		if row.fits(code, status) {
			return row.kind
		}
	}
	return nil
}

// sorted gives a failed call its kind. action is the one of IAM that it takes.
func sorted(action string, err error) error {
	if own, ok := awsclient.Refused(err); ok {
		return own
	}
	var unsent *smithy.InvalidParamsError
	var unsigned awsclient.CredentialsError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unsent):
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	case errors.As(err, &unsigned) && passing(err):
		return fmt.Errorf("no credentials to call %s with at the moment: %w", action, err)
	case errors.As(err, &unsigned):
		return fmt.Errorf("%w: no credentials to call %s with: %w", provider.ErrUnauthorized, action, err)
	}
	code, status := awsclient.Code(err)
	if status == 0 {
		return err
	}
	switch kind := kindOf(code, status); {
	case kind == nil:
		return fmt.Errorf("%s: %w", action, said{err})
	case errors.Is(kind, provider.ErrUnauthorized):
		return fmt.Errorf("%w: %s is not allowed: %w", kind, actionOf(action, err), said{err})
	default:
		return fmt.Errorf("%w: %s: %w", kind, action, said{err})
	}
}

// passing reports whether credentials may be had at the next try: what tells them did not
// answer, or is not well. Who has none at all is told so, and has to be given some.
func passing(err error) bool {
	var late interface{ Timeout() bool }
	var unreached *net.OpError
	_, status := awsclient.Code(err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &unreached) ||
		status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || errors.As(err, &late) && late.Timeout()
}

// said reads as the service's own words. The SDK's have the id of the request in them,
// with which each refusal looks like a new one.
type said struct{ error }

func (s said) Error() string { return words(s.error) }
func (s said) Unwrap() error { return s.error }

var (
	deniedAction = regexp.MustCompile(`not authorized to perform:? ([a-z0-9-]+:[A-Za-z0-9]+)`)
	encoded      = regexp.MustCompile(`\s*Encoded authorization failure message: \S+`)
)

// codeSpotRole says that EC2 may not make the role that the first spot instance of an
// account needs.
const codeSpotRole = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

// actionOf is what IAM denies: a launch also takes the right to tag, and to pass the
// role of the instance on, and only EC2's words tell which one is missing.
func actionOf(action string, err error) string {
	if code, _ := awsclient.Code(err); code == codeSpotRole {
		return "iam:CreateServiceLinkedRole"
	}
	if m := deniedAction.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return action
}

// words is a refusal without what only `aws sts decode-authorization-message` reads.
func words(err error) string {
	var api smithy.APIError
	if code, status := awsclient.Code(err); code == codeNone {
		return fmt.Sprintf("HTTP status %d without a code: it is not of AWS, or was cut short", status)
	}
	if errors.As(err, &api) {
		return api.ErrorCode() + ": " + encoded.ReplaceAllString(api.ErrorMessage(), "")
	}
	return err.Error()
}
