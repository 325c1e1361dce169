package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Header identifies one write of a mutable object. It is unique, so the bytes differ on every
// write, and a writer that lost a reply can distinguish its own write from another's.
type Header struct {
	Epoch  uint64 `json:"epoch"`  // of the term in which it was written
	Rev    uint64 `json:"rev"`    // incremented by each write
	Writer string `json:"writer"` // the process that wrote it
}

// headerMark is the prefix of a header in a text with comments.
const headerMark = "// {"

// WithHeader prepends a header to a static config as a comment on its own line. The text is
// unchanged, and the result is still a static config.
func WithHeader(h Header, text []byte) []byte {
	// Numbers and a string always encode, and the string's line breaks are escaped.
	line, _ := json.Marshal(h)
	return slices.Concat([]byte("// "), line, []byte("\n"), text)
}

// CutHeader is the inverse of WithHeader. A text without a header, as written before there were
// headers, has the zero Header. The error is for a malformed header.
func CutHeader(data []byte) (Header, []byte, error) {
	line, text, found := bytes.Cut(data, []byte("\n"))
	if !found || !bytes.HasPrefix(line, []byte(headerMark)) {
		return Header{}, data, nil
	}
	line = bytes.TrimPrefix(line, []byte("// "))
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || fields["epoch"] == nil {
		return Header{}, data, nil //nolint:nilerr // an ordinary comment
	}
	var h Header
	if err := json.Unmarshal(line, &h); err != nil {
		return Header{}, data, fmt.Errorf("header in the first line: %w", err)
	}
	return h, text, nil
}
