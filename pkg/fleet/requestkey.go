package fleet

import (
	"fmt"
	"regexp"
)

// MaxRequestKeyLength is the maximum length of an idempotency key, in characters. With a
// tenant prefix it stays well below the limit of an object key's segment.
const MaxRequestKeyLength = 128

var requestKeyPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// CheckRequestKey returns an error if s is not a valid idempotency key of an on-demand
// instance. The caller adds the field's name.
func CheckRequestKey(s string) error {
	if !requestKeyPattern.MatchString(s) {
		return fmt.Errorf("%.80q is not a valid idempotency key: want letters, digits, '.', '_' and '-', no leading dot, "+
			"at most %d characters", s, MaxRequestKeyLength)
	}
	return nil
}
