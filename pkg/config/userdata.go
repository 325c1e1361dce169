package config

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/nstance/nstance/pkg/fleet"
)

// The values of a userdata's source and encoding.
const (
	userdataInline = "inline"
	encodingPlain  = "plain"
	encodingGzip   = "gzip"
)

func encode(u fleet.Userdata, text string) ([]byte, error) {
	switch u.Encoding {
	case encodingPlain, "":
		return []byte(text), nil
	case encodingGzip:
		return compress(text)
	}
	return nil, fmt.Errorf("encode userdata: %.80q is not an encoding: want plain or gzip", u.Encoding)
}

func compress(text string) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("compress userdata: %w", err)
	}
	return out.Bytes(), nil
}

// misread returns what keeps machines from recognizing rendered userdata: its first characters, such
// as #! and #cloud-config, say what it is. White space alone is no userdata.
func misread(text string) (problems Problems) {
	const path = "userdata.content"
	begins := strings.TrimLeftFunc(text, unicode.IsSpace)
	switch first, _, _ := strings.Cut(text, "\n"); {
	case strings.HasPrefix(begins, "\uFEFF"):
		problems.addf(path, "begins with a byte order mark, so machines don't recognize what follows: save it as UTF-8 without one")
	case begins == "" || begins == text:
	case strings.TrimSpace(first) == "":
		problems.addf(path, "the first line is empty when rendered: a script is not run then, and images differ in whether they recognize "+
			"the rest; remove the line, or end the template's action by -}}")
	default:
		problems.addf(path, "begins with white space when rendered: a script is not run then, and images differ in whether they recognize "+
			"the rest; remove it")
	}
	return problems
}
