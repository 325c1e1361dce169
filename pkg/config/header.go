package config

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
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
func WithHeader(h Header, text []byte) []byte { return withLine(h, text) }

func withLine(header any, text []byte) []byte {
	// Numbers, strings and bytes always encode, and line breaks in strings are escaped.
	line, _ := json.Marshal(header)
	return slices.Concat([]byte("// "), line, []byte("\n"), text)
}

// Packed is a compressed text.
type Packed []byte

// Pack compresses a text.
func Pack(text []byte) Packed {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	// A buffer takes everything.
	_, _ = w.Write(text)
	_ = w.Close()
	return out.Bytes()
}

// Unpack returns the text. The error wraps ErrTooLarge if no config is that long.
func (p Packed) Unpack() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpack: %w", err)
	case len(text) > MaxSize:
		return nil, fmt.Errorf("unpack: %w: more than %d bytes", ErrTooLarge, MaxSize)
	}
	return text, nil
}

// acceptedHeader is the header of an accepted config.
type acceptedHeader struct {
	Header

	Before Packed `json:"before,omitempty"` // the text that was accepted before
}

// WithBefore is WithHeader for an accepted config.
func WithBefore(h Header, before Packed, text []byte) []byte {
	return withLine(acceptedHeader{h, before}, text)
}

// PackedBefore returns what WithBefore has stored; nil if there is nothing, or a damaged header.
func PackedBefore(data []byte) Packed {
	line, _, found := bytes.Cut(data, []byte("\n"))
	if !found || !bytes.HasPrefix(line, []byte(headerMark)) {
		return nil
	}
	var h acceptedHeader
	if err := json.Unmarshal(bytes.TrimPrefix(line, []byte("// ")), &h); err != nil {
		return nil
	}
	return h.Before
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
