package provider

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWhy is the maximum length of a reason in bytes.
const maxWhy = 256

// Why returns the VM's Reason sanitised for records and output: one line of printable
// characters, at most 256 bytes.
func (vm VM) Why() string {
	line := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(vm.Reason[:min(len(vm.Reason), 4*maxWhy)], "\uFFFD"))
	line = strings.Join(strings.Fields(line), " ")
	if len(line) <= maxWhy {
		return line
	}
	end := maxWhy - len("…")
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}
