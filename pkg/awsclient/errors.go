package awsclient

import (
	"errors"
	"slices"

	"github.com/aws/smithy-go"
)

// CredentialsError says that there are no credentials to sign a call with. Nothing was
// sent.
type CredentialsError struct{ error }

func (e CredentialsError) Unwrap() error { return e.error }

// Code returns what a service refused a call with, and the status of HTTP: empty and 0
// when it did not answer.
func Code(err error) (code string, status int) {
	var answer interface{ HTTPStatusCode() int } // the SDK's, and awscall's
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	return code, status
}

// Expired reports whether a service refused a call since the credentials, or the
// signature, are too old by now.
func Expired(err error) bool {
	code, _ := Code(err)
	return ExpiredCode(code)
}

// ExpiredCode reports whether code is one of Expired.
func ExpiredCode(code string) bool {
	return slices.Contains([]string{"ExpiredToken", "ExpiredTokenException", "RequestExpired"}, code)
}
