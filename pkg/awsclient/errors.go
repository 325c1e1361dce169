package awsclient

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"
)

// CredentialsError means that there are no credentials to sign a call with. No request was
// sent.
type CredentialsError struct{ error }

func (e CredentialsError) Unwrap() error { return e.error }

// NoCode is the SDK's code of an error response without a code. It may come from an
// intermediary, even if the call took effect.
const NoCode = "UnknownError"

// Code returns the error code and HTTP status of a service's refusal; empty and 0 if the
// service did not answer.
func Code(err error) (code string, status int) {
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	return code, status
}

// Coded reports whether a service refused a call with one of the codes.
func Coded(err error, codes ...string) bool {
	code, _ := Code(err)
	return slices.Contains(codes, code)
}

// Expired reports whether a service refused a call because its credentials or signature have
// expired.
func Expired(err error) bool {
	code, _ := Code(err)
	return ExpiredCode(code)
}

// ExpiredCode reports whether code is one that Expired matches.
func ExpiredCode(code string) bool {
	return slices.Contains([]string{"ExpiredToken", "ExpiredTokenException", "RequestExpired"}, code)
}

// Throttled reports whether a service throttled a call.
func Throttled(err error) bool {
	code, status := Code(err)
	begins := func(how string) bool { return strings.HasPrefix(code, how) }
	return status == http.StatusTooManyRequests || code == "RequestLimitExceeded" || code == "SlowDown" ||
		slices.ContainsFunc([]string{"Throttl", "TooManyRequests", "RequestThrottled", "EC2Throttled"}, begins)
}

// NoEffect reports whether a call made with Once definitely had no effect: it was not sent, or
// was refused with an error that is not a server error.
func NoEffect(err error) bool {
	code, status := Code(err)
	refused := code != "" && code != NoCode && status >= http.StatusBadRequest && status < http.StatusInternalServerError
	return refused || unsent(err) || Throttled(err)
}

// unsent reports whether a call failed before it was sent.
func unsent(err error) bool {
	var (
		keys     CredentialsError
		input    *smithy.InvalidParamsError
		written  *smithy.SerializationError
		signed   *v4.SigningError
		_, asked = Refused(err)
	)
	return asked || errors.As(err, &keys) || errors.As(err, &input) || errors.As(err, &written) || errors.As(err, &signed)
}

// temporary reports whether a failed call should be retried. A reply that is not from the
// service should not: it would repeat.
func temporary(err error) bool {
	var garbled *smithy.DeserializationError
	_, status := Code(err)
	return status >= http.StatusInternalServerError || Throttled(err) || Expired(err) ||
		status < http.StatusBadRequest && !unsent(err) && !errors.As(err, &garbled)
}

// said is an error that reads as the service's message.
type said struct {
	error
	text string
}

func (s said) Error() string { return s.text }
func (s said) Unwrap() error { return s.error }

// InWords removes request IDs and the like from a refusal, which make each look new, and the
// content of a malformed reply, which may be a secret.
func InWords(err error) error {
	var (
		garbled *smithy.DeserializationError
		called  *smithy.OperationError
		api     smithy.APIError
	)
	action := "the call"
	if errors.As(err, &called) {
		action = called.Operation()
	}
	code, status := Code(err)
	switch {
	case errors.As(err, &garbled), code == NoCode:
		return said{err, fmt.Sprintf("%s: unexpected reply with HTTP status %d: it may not be from the service", action, status)}
	case errors.As(err, &api):
		return said{err, fmt.Sprintf("AWS refuses %s: %s: %s", action, code, api.ErrorMessage())}
	default:
		return err
	}
}
