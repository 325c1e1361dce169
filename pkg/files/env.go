package files

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

var envNamePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkEnv accepts what shells, systemd and container engines all read as the
// same names: lines of NAME=value, empty lines, and comments that begin with #.
// A value is the rest of the line. One that begins with a quote ends with the
// same one, which stands nowhere else in it unless a backslash precedes it.
func checkEnv(content []byte) error {
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		if wrong := checkEnvLine(strings.TrimSuffix(line, "\n")); wrong != "" {
			return fmt.Errorf("line %d: %s", n, wrong)
		}
	}
	return nil
}

// checkEnvLine says what is wrong with a line; empty: nothing.
func checkEnvLine(line string) string {
	if !utf8.ValidString(line) {
		return "not UTF-8"
	}
	if strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
		return "a control character: want none, and lines that end with a line feed alone"
	}
	if blank := strings.TrimSpace(line); blank == "" || blank[0] == '#' {
		return ""
	}
	name, value, ok := strings.Cut(line, "=")
	if !ok || !envNamePattern.MatchString(name) {
		return "want NAME=value with a name of letters, digits and underscores"
	}
	if !balanced(value) {
		return "a value that begins with a quote: want the same quote at its end and no other between them"
	}
	return ""
}

func balanced(value string) bool {
	if value == "" || value[0] != '"' && value[0] != '\'' {
		return true
	}
	quote := value[0]
	for i := 1; i < len(value); i++ {
		switch {
		case value[i] == '\\' && quote == '"':
			i++
		case value[i] == quote:
			return strings.TrimRight(value[i+1:], " \t") == ""
		}
	}
	return false
}
