package files

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

var envNamePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkEnv accepts lines that shells, systemd and container engines all parse as the same
// names: NAME=value, empty lines, and comments starting with #. A value is the rest of the
// line. If it starts with a quote, it must end with the same one, without further unescaped
// ones in between.
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

// checkEnvLine returns what is wrong with a line, or an empty string.
func checkEnvLine(line string) string {
	if !utf8.ValidString(line) {
		return "not UTF-8"
	}
	if strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
		return "a control character: want none, and lines that end in a line feed only"
	}
	if blank := strings.TrimSpace(line); blank == "" || blank[0] == '#' {
		return ""
	}
	name, value, ok := strings.Cut(line, "=")
	if !ok || !envNamePattern.MatchString(name) {
		return "want NAME=value with a name of letters, digits and underscores"
	}
	if !balanced(value) {
		return "a value that starts with a quote: want the same quote at its end and no other in between"
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
