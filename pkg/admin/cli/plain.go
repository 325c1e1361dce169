package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// oneLine returns a text of a server for one line of a terminal: line breaks, control characters
// and those that change the direction of text are spaces.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// moves reports whether a character could move a terminal's cursor, or change what it shows, within a line.
func moves(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// plain returns what may be written to a terminal: lines with nothing that it would interpret.
func plain(lines []byte) string {
	return strings.Map(func(r rune) rune {
		if moves(r) {
			return ' '
		}
		return r
	}, string(lines))
}

// escaped returns the same JSON, with escapes for all that a terminal would interpret: package json
// escapes a part of that.
func escaped(json []byte) string {
	var out strings.Builder
	for _, r := range string(json) {
		if !moves(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}
