package problems

import "errors"

// reasoned is an error with the reason of its problem.
type reasoned struct {
	reason string
	error
}

func (r *reasoned) Unwrap() error { return r.error }

// Because returns an error with the reason of the problem that it is.
func Because(reason string, err error) error { return &reasoned{reason: reason, error: err} }

// ReasonOf returns the reason of an error's problem, or otherwise if it has none.
func ReasonOf(err error, otherwise string) string {
	if r := (*reasoned)(nil); errors.As(err, &r) {
		return r.reason
	}
	return otherwise
}
