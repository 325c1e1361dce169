package leader

import "errors"

// The parts of which one may keep a server from serving, as the health endpoint
// names them.
const (
	PartConfig  = "config"
	PartLedger  = "ledger"
	partGroups  = "dynamic groups"
	partFiles   = "files"
	partUnknown = "takeover"
)

// partError is an error and the part that it is about. Its text is the error's:
// that is for the log, and may name what not everybody is to know who can reach
// the health endpoint. The part is for that.
type partError struct {
	error
	part string
}

func (e partError) Unwrap() error { return e.error }

// InPart says what part an error is about; nil stays nil.
func InPart(part string, err error) error {
	if err == nil {
		return nil
	}
	return partError{err, part}
}

// PartOf is the part that an error is about.
func PartOf(err error) string {
	if p := (partError{}); errors.As(err, &p) {
		return p.part
	}
	return partUnknown
}
