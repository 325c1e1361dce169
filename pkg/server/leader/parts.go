package leader

import "errors"

// The parts that may keep a server from serving, by their names in the health endpoint.
const (
	PartConfig = "config"
	PartLedger = "ledger"
	partGroups = "dynamic groups"
	partFiles  = "files"
)

// PartError is an error of a part. Its text is the error's, for the log only: it may hold
// details that callers of the health endpoint must not see. The endpoint names only the part.
type PartError struct {
	Part string
	Err  error
}

func (e *PartError) Error() string { return e.Err.Error() }
func (e *PartError) Unwrap() error { return e.Err }

// PartOf returns the part that an error is about.
func PartOf(err error) string {
	if p := (*PartError)(nil); errors.As(err, &p) {
		return p.Part
	}
	return "takeover"
}
