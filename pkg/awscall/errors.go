package awscall

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/nstance/nstance/pkg/awsclient"
)

// Error is a refusal of a service.
type Error struct {
	Action  string
	Code    string // empty: the answer is none of the service's
	Message string
	Status  int // of HTTP
}

var _ smithy.APIError = (*Error)(nil)

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s: status %d: %s", e.Action, e.Status, e.Message)
	}
	return fmt.Sprintf("%s: %s (%d): %s", e.Action, e.Code, e.Status, e.Message)
}

// HTTPStatusCode is that of the reply, as the SDK's errors have it.
func (e *Error) HTTPStatusCode() int { return e.Status }

// ErrorCode implements smithy.APIError.
func (e *Error) ErrorCode() string { return e.Code }

// ErrorMessage implements smithy.APIError.
func (e *Error) ErrorMessage() string { return e.Message }

// ErrorFault implements smithy.APIError.
func (e *Error) ErrorFault() smithy.ErrorFault {
	if e.Status >= http.StatusInternalServerError {
		return smithy.FaultServer
	}
	return smithy.FaultClient
}

// Throttled reports whether a service refused a call for the number of calls.
func Throttled(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, begins := range []string{"Throttl", "TooManyRequests", "RequestThrottled", "EC2Throttled"} {
		if strings.HasPrefix(e.Code, begins) {
			return true
		}
	}
	return e.Status == http.StatusTooManyRequests || e.Code == "RequestLimitExceeded" || e.Code == "SlowDown"
}

// Coded reports whether a service refused a call with one of these codes.
func Coded(err error, codes ...string) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, code := range codes {
		if e.Code == code {
			return true
		}
	}
	return false
}

// Refused reports whether a call certainly had no effect: it was not sent, or it was
// answered with a refusal that is not about the service itself.
func Refused(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return e.Code != "" && e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError || Throttled(err)
	}
	return before(err)
}

// temporary reports whether a failed call is worth another attempt.
func temporary(err error) bool {
	var e *Error
	switch {
	case before(err):
		return false
	case errors.As(err, &e):
		return e.Status >= http.StatusInternalServerError || Throttled(err) || awsclient.Expired(err)
	default:
		return true
	}
}

// before reports whether a call failed before anything was on its way.
func before(err error) bool {
	var u unsent
	_, refused := awsclient.Refused(err)
	return refused || errors.As(err, &u)
}
