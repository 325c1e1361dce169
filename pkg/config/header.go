package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Header says which write of an object that changes this is. No two writes bear
// the same one, so the bytes differ on every write, and whoever lost a reply can
// tell its own write from another's.
type Header struct {
	Epoch  uint64 `json:"epoch"`  // of the term in which it was written
	Rev    uint64 `json:"rev"`    // one higher with each write
	Writer string `json:"writer"` // the process that wrote it
}

// Header is that of the dynamic groups.
func (d Dynamic) Header() Header { return Header{Epoch: d.Epoch, Rev: d.Rev, Writer: d.Writer} }

// headerMark is what a header in a text with comments begins with.
const headerMark = "// {"

// WithHeader puts a header before a static config, as a comment in a line of its
// own. The text after it is untouched, and the whole is still a static config.
func WithHeader(h Header, text []byte) []byte {
	// Numbers and a string always encode, and the string's line breaks are escaped.
	line, _ := json.Marshal(h)
	return slices.Concat([]byte("// "), line, []byte("\n"), text)
}

// CutHeader undoes WithHeader. A text that begins with no header, as one that was
// written before there were any, has the zero Header. The error is for a header
// that is there and can't be read.
func CutHeader(data []byte) (Header, []byte, error) {
	line, text, found := bytes.Cut(data, []byte("\n"))
	if !found || !bytes.HasPrefix(line, []byte(headerMark)) {
		return Header{}, data, nil
	}
	line = bytes.TrimPrefix(line, []byte("// "))
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || fields["epoch"] == nil {
		return Header{}, data, nil //nolint:nilerr // somebody's comment
	}
	var h Header
	if err := json.Unmarshal(line, &h); err != nil {
		return Header{}, data, fmt.Errorf("header in the first line: %w", err)
	}
	return h, text, nil
}
