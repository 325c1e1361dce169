package fleet

import (
	"fmt"
	"regexp"
)

// MaxInstanceType is the maximum length of an instance type, in characters. The longest names of
// clouds have about 30.
const MaxInstanceType = 64

var instanceTypePattern = regexp.MustCompile(`^[!-~]+$`)

// CheckInstanceType returns an error if s can't be an instance type of any provider. The error states
// the value and the rule; the caller adds the field's path.
func CheckInstanceType(s string) error {
	if len(s) > MaxInstanceType || !instanceTypePattern.MatchString(s) {
		return fmt.Errorf("%.80q is not an instance type: want ASCII letters, digits and punctuation, without spaces, at most %d characters",
			s, MaxInstanceType)
	}
	return nil
}
