package fleet

import (
	"fmt"
	"regexp"
)

// MaxRequestKeyLength is the longest idempotency key, in characters. With a tenant
// in front it stays far within what a segment of an object's key may be.
const MaxRequestKeyLength = 128

var requestKeyPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// CheckRequestKey reports why s can't be the idempotency key of an on-demand
// instance; nil when it can. The error leaves the name of the field to the caller.
func CheckRequestKey(s string) error {
	if !requestKeyPattern.MatchString(s) {
		return fmt.Errorf("%.80q is not a valid idempotency key: want letters, digits, '.', '_' and '-', no dot in front, "+
			"at most %d characters", s, MaxRequestKeyLength)
	}
	return nil
}
