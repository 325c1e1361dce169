package leader

import "errors"

// The parts of which one may keep a server from serving, as the health endpoint
// names them.
const (
	PartConfig = "config"
	PartLedger = "ledger"
	partGroups = "dynamic groups"
	partFiles  = "files"
)

// PartError is an error and the part that it is about. Its text is the error's:
// that is for the log, and may name what not everybody is to know who can reach
// the health endpoint. The part is for that.
type PartError struct {
	Part string
	Err  error
}

func (e *PartError) Error() string { return e.Err.Error() }
func (e *PartError) Unwrap() error { return e.Err }

// PartOf is the part that an error is about.
func PartOf(err error) string {
	if p := (*PartError)(nil); errors.As(err, &p) {
		return p.Part
	}
	return "takeover"
}
