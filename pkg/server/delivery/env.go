package delivery

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainValue matches values that need no quotes, so that parsers without quoting (container
// engines) read them correctly too.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]*$`)

// special are the characters with a meaning inside double quotes for a POSIX shell (Shell
// Command Language, 2.2.3) and for systemd.
var special = regexp.MustCompile("[\\\\\"$`]")

// EnvFile writes values as NAME=value lines, sorted by name. Values are strings, booleans,
// int64 or float64. A value with other than plain characters is double-quoted in a way that a
// POSIX shell and systemd read alike. Line breaks and other control characters are an error,
// because not every parser of such files can read them as part of a value.
func EnvFile(values map[string]any) ([]byte, error) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text, err := envText(values[name])
		if err != nil {
			return nil, fmt.Errorf("value of %.80s: %w", name, err)
		}
		if !plainValue.MatchString(text) {
			text = `"` + special.ReplaceAllString(text, `\$0`) + `"`
		}
		b.WriteString(name + "=" + text + "\n")
	}
	return []byte(b.String()), nil
}

func envText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return "", fmt.Errorf("is not UTF-8: encode it, for example as base64")
		}
		if strings.ContainsFunc(v, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
			return "", fmt.Errorf("has a line break or another control character: encode it, for example as base64")
		}
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	default:
		return "", fmt.Errorf("is of type %T: want a string, a number, true or false", v)
	}
}
