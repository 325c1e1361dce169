package object

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The maximum sizes of a key, in bytes. S3 allows keys of 1024; the limit of a segment leaves a
// file-based backend room for a suffix within the 255 bytes of a file name.
const (
	MaxKey     = 1024
	MaxSegment = 240
)

// ErrInvalidKey is the error of a key that no backend accepts.
var ErrInvalidKey = errors.New("invalid object key")

// CheckKey returns an error that wraps ErrInvalidKey unless key is a slash-separated path of
// non-empty segments, none of them "." or "..", in valid UTF-8, without control characters
// (which an S3 listing, being XML 1.0, can't represent), within MaxKey and MaxSegment.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: empty", ErrInvalidKey)
	case len(key) > MaxKey:
		return fmt.Errorf("%w: %d bytes long, at most %d are allowed", ErrInvalidKey, len(key), MaxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w %q: not UTF-8", ErrInvalidKey, key)
	}
	if i := strings.IndexFunc(key, unprintable); i >= 0 {
		return fmt.Errorf("%w %q: control character at byte %d", ErrInvalidKey, key, i)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if err := checkSegment(segment); err != nil {
			return fmt.Errorf("%w %q: %w", ErrInvalidKey, key, err)
		}
	}
	return nil
}

func checkSegment(s string) error {
	switch {
	case s == "":
		return errors.New("empty segment (a slash at either end, or two in a row)")
	case s == "." || s == "..":
		return fmt.Errorf("segment %q is not a name", s)
	case len(s) > MaxSegment:
		return fmt.Errorf("segment of %d bytes, at most %d are allowed", len(s), MaxSegment)
	}
	return nil
}

// unprintable reports characters that XML 1.0 can't represent (its Char production), and control
// characters that it can.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || r == 0xFFFE || r == 0xFFFF
}
