package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

const (
	// MaxSize is the largest config that is read, in bytes.
	MaxSize = 8 << 20
	// MaxNesting is how deep objects and arrays may lie in each other.
	MaxNesting = 64
)

// Parse reads a static config: JSON with comments and trailing commas, strict
// otherwise. The error is of type Problems and lists everything that is wrong,
// each with its path.
func Parse(data []byte) (*Shard, error) {
	return ParseWith(data, Checks{})
}

// ParseAccepted is Parse for a text that was accepted before, maybe by another version of this
// program. Unknown fields are skipped. Violations of rules that an earlier version did not
// have, about tenants' use of resources and quotas, are not errors: Resolve reports them for
// the groups concerned, and disables these.
func ParseAccepted(data []byte) (*Shard, error) {
	d := newDecoder(data)
	d.tolerant = true
	return d.parse(Checks{})
}

// ParseWith is Parse with a provider's checks.
func ParseWith(data []byte, checks Checks) (*Shard, error) {
	return newDecoder(data).parse(checks)
}

func (d *decoder) parse(checks Checks) (*Shard, error) {
	root, err := parseSyntax(d.text)
	if err != nil {
		return nil, err
	}
	shard := &Shard{}
	d.decode("", root, reflect.ValueOf(shard).Elem())
	applyDefaults(shard, d.seen)
	v := &validator{findings: findings{broken: d.broken}, shard: shard, checks: checks}
	if d.tolerant {
		v.excused = newExcuses()
	}
	problems := append(d.problems, v.validate()...)
	if err := problems.sorted().Err(); err != nil {
		return nil, err
	}
	if d.tolerant {
		shard.excused = v.excused.completed(shard)
	}
	return shard, nil
}

// parseSyntax returns the syntax tree, or a Problems with the line and column of
// the first mistake.
func parseSyntax(data []byte) (hujson.Value, error) {
	fail := func(format string, args ...any) (hujson.Value, error) {
		return hujson.Value{}, Problems{{Message: fmt.Sprintf(format, args...)}}
	}
	if len(data) > MaxSize {
		return fail("the text has %d bytes: at most %d are read", len(data), MaxSize)
	}
	if n := firstInvalidUTF8(data); n >= 0 {
		return fail("%s: not valid UTF-8", position(data, n))
	}
	if n := tooDeep(data); n >= 0 {
		return fail("%s: objects and arrays are nested more than %d deep", position(data, n), MaxNesting)
	}
	// The final newline ends a comment on the last line.
	root, err := hujson.Parse(append(bytes.Clone(data), '\n'))
	if err != nil {
		return fail("%.300s", strings.TrimPrefix(err.Error(), "hujson: "))
	}
	return root, nil
}

func firstInvalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for n := 0; n < len(data); {
		r, size := utf8.DecodeRune(data[n:])
		if r == utf8.RuneError && size == 1 {
			return n
		}
		n += size
	}
	return -1
}

// tooDeep returns the offset of the first bracket that is nested too deep, or -1. It runs before
// the parser, which recurses, because a stack overflow can't be recovered.
func tooDeep(data []byte) int {
	depth := 0
	for n := 0; n < len(data); n++ {
		switch data[n] {
		case '"':
			n = skipString(data, n)
		case '/':
			n = skipComment(data, n)
		case '{', '[':
			if depth++; depth > MaxNesting {
				return n
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

// skipString returns the offset of the quote that ends the string begun at n.
func skipString(data []byte, n int) int {
	for n++; n < len(data) && data[n] != '"'; n++ {
		if data[n] == '\\' {
			n++
		}
	}
	return n
}

// skipComment returns the offset of the last byte of the comment begun at n, or n if there is
// none.
func skipComment(data []byte, n int) int {
	end := ""
	switch {
	case bytes.HasPrefix(data[n:], []byte("//")):
		end = "\n"
	case bytes.HasPrefix(data[n:], []byte("/*")):
		end = "*/"
	default:
		return n
	}
	i := bytes.Index(data[n+2:], []byte(end))
	if i < 0 {
		return len(data)
	}
	return n + 2 + i + len(end) - 1
}

func position(data []byte, n int) string {
	line, column := lineAndColumn(data, n)
	return fmt.Sprintf("line %d, column %d", line, column)
}
