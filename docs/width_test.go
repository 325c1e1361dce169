package docs_test

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is the most that a line of a page has. Rows of tables can't be broken.
const columns = 160

func TestLineLength(t *testing.T) {
	for _, p := range pages(t) {
		n := 0
		for line := range strings.SplitSeq(p.text, "\n") {
			n++
			if width := utf8.RuneCountInString(line); width > columns && !strings.HasPrefix(strings.TrimSpace(line), "|") {
				t.Errorf("%s:%d has %d columns, want at most %d", p.path, n, width, columns)
			}
		}
	}
}
