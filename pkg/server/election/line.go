package election

import (
	"fmt"

	"github.com/nstance/nstance/pkg/object"
)

// Line is one line of the response to GET /leader. The first has the server's holder and, if
// it holds the record, the record. Each renewal and the release follow with etag and rev, and
// with the record if more changed. Ask is the number of a question: could the reader act? The
// reply is an Answer.
type Line struct {
	Server   string      `json:"server,omitempty"`
	ETag     object.ETag `json:"etag,omitempty"`
	Rev      uint64      `json:"rev,omitempty"`
	Released bool        `json:"released,omitempty"`
	Record   *Record     `json:"record,omitempty"`
	Ask      uint64      `json:"ask,omitempty"`
}

// ParseLine parses one line, as strictly as ParseRecord.
func ParseLine(b []byte) (Line, error) {
	var l Line
	if err := parseOne(b, &l); err != nil {
		return Line{}, fmt.Errorf("parse leader line: %w", err)
	}
	switch {
	case l.Server == "" && l.ETag == "":
		return Line{}, fmt.Errorf("parse leader line: neither server nor etag is set")
	case len(l.Server) > maxHolder:
		return Line{}, fmt.Errorf("parse leader line: server: %.80q is longer than %d characters", l.Server, maxHolder)
	case (l.Record != nil || l.Released) && l.ETag == "":
		return Line{}, fmt.Errorf("parse leader line: etag is missing for the record")
	case l.Record != nil && l.Record.Rev != l.Rev:
		return Line{}, fmt.Errorf("parse leader line: rev: %d, but the record has rev %d", l.Rev, l.Record.Rev)
	}
	return l, nil
}
