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

// errorRow maps an error code to a kind. A trailing * matches any suffix.
type errorRow struct {
	code   string
	status int // HTTP status; 0: any; 4: 400 to 499
	kind   error
}

// Codes that Create handles specially.
const (
	codeMismatch   = "IdempotentParameterMismatch"
	codeTerminated = "IdempotentInstanceTerminated"
)

const codeInvalidTarget = "InvalidTarget"

// errorTable returns the error codes of EC2 and Elastic Load Balancing. The first matching row
// decides. A code without a row, including every other 5xx, is temporary, with unknown outcome.
func errorTable() []errorRow {
	var rows []errorRow
	add := func(kind error, status int, codes ...string) {
		for _, code := range codes {
			rows = append(rows, errorRow{code, status, kind})
		}
	}
	// No kind: Create looks for the instance.
	add(nil, 0, codeMismatch, codeTerminated)
	// No kind: resolved by new credentials or a corrected clock.
	add(nil, 0, "ExpiredToken*", "RequestExpired", "InvalidSecurity.RequestHasExpired")
	add(provider.ErrUnauthorized, 401, awsclient.NoCode)
	add(provider.ErrUnauthorized, 403, awsclient.NoCode)
	add(provider.ErrThrottled, 429, awsclient.NoCode)
	add(nil, 0, awsclient.NoCode)
	add(provider.ErrSubnetFull, 0, "InsufficientFreeAddressesInSubnet", "InsufficientCidrBlocks")
	// Of the account or zone. Insufficient capacity is a 500.
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

// kindOf returns the kind of an error code; nil if the outcome is unknown.
func kindOf(code string, status int) error {
	for _, row := range errorTable() {
		if row.fits(code, status) {
			return row.kind
		}
	}
	return nil
}

// sorted wraps a failed call in its kind. action is the IAM action of the call.
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
		return fmt.Errorf("credentials for %s temporarily unavailable: %w", action, err)
	case errors.As(err, &unsigned):
		return fmt.Errorf("%w: no credentials for %s: %w", provider.ErrUnauthorized, action, err)
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

// passing reports whether credentials may become available: their source did not answer or has
// an error of its own. Missing credentials are permanent.
func passing(err error) bool {
	var late interface{ Timeout() bool }
	var unreached *net.OpError
	_, status := awsclient.Code(err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &unreached) ||
		status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || errors.As(err, &late) && late.Timeout()
}

// said is an error that reads as the service's message. The SDK's messages contain request IDs,
// which make each refusal look new.
type said struct{ error }

func (s said) Error() string { return words(s.error) }
func (s said) Unwrap() error { return s.error }

var (
	deniedAction = regexp.MustCompile(`not authorized to perform:? ([a-z0-9-]+:[A-Za-z0-9]+)`)
	encoded      = regexp.MustCompile(`\s*Encoded authorization failure message: \S+`)
)

// codeSpotRole means that EC2 may not create the role that an account's first spot instance
// needs.
const codeSpotRole = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

// actionOf returns the denied IAM action: a launch also needs permission to tag and to pass the
// instance's role, and only EC2's message tells which one is missing.
func actionOf(action string, err error) string {
	if code, _ := awsclient.Code(err); code == codeSpotRole {
		return "iam:CreateServiceLinkedRole"
	}
	if m := deniedAction.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return action
}

// words returns a refusal without its encoded authorization message.
func words(err error) string {
	var api smithy.APIError
	if code, status := awsclient.Code(err); code == awsclient.NoCode {
		return fmt.Sprintf("HTTP status %d without an error code: not from AWS, or truncated", status)
	}
	if errors.As(err, &api) {
		return api.ErrorCode() + ": " + encoded.ReplaceAllString(api.ErrorMessage(), "")
	}
	return err.Error()
}
