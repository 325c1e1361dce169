package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// LocatedProblem is a problem with its position in the text. Line and Column begin at 1, and a
// column is a byte; both are 0 if the message itself has the position, or there is none.
type LocatedProblem struct {
	Problem

	Line, Column int
}

func (p LocatedProblem) String() string {
	if p.Line == 0 {
		return p.Problem.String()
	}
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Problem)
}

// Located are the problems of a text, by position. As an error, it is never empty.
type Located []LocatedProblem

func (ps Located) Error() string {
	lines := make([]string, len(ps))
	for n, p := range ps {
		lines[n] = p.String()
	}
	if len(ps) == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%d problems:\n  %s", len(ps), strings.Join(lines, "\n  "))
}

// Locate finds the fields that problems name in the text of a config. A field that is missing is
// located at the closest object or array around it.
func Locate(text []byte, problems Problems) Located {
	root, err := parseSyntax(text)
	all := make(Located, len(problems))
	for n, p := range problems {
		all[n] = LocatedProblem{Problem: p}
		if err == nil && p.Path != "" {
			all[n].Line, all[n].Column = lineAndColumn(text, offsetOf(root, p.Path))
		}
	}
	slices.SortStableFunc(all, func(a, b LocatedProblem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// LocateError is Locate for an error: one that is a Problems becomes a Located, and others stay.
func LocateError(text []byte, err error) error {
	var problems Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		return err
	}
	return Locate(text, problems)
}

// offsetOf returns the offset of the field that a path names, or of the closest one around it.
func offsetOf(v hujson.Value, path string) int {
	offset := v.StartOffset
	for path != "" {
		s, rest, ok := firstStep(path)
		if !ok {
			break
		}
		at, next, found := s.into(v)
		if !found {
			break
		}
		offset, v, path = at, next, rest
	}
	return offset
}

// step is one part of a path: the key of an object, or an index of an array.
type step struct {
	key   string
	index int // -1: a key
	cut   bool
}

var (
	keyStep    = regexp.MustCompile(`^\.?([A-Za-z0-9_-]+)`)
	indexStep  = regexp.MustCompile(`^\[([0-9]{1,9})\]`)
	quotedStep = regexp.MustCompile(`^\[("(?:[^"\\]|\\.)*")\]`)
)

// maxPathKey is the length to which join cuts a key, in characters.
const maxPathKey = 80

// firstStep cuts the first step from a path that join and at made; ok is false if there is none.
func firstStep(path string) (s step, rest string, ok bool) {
	if m := keyStep.FindStringSubmatch(path); m != nil {
		return step{key: m[1], index: -1}, path[len(m[0]):], true
	}
	if m := indexStep.FindStringSubmatch(path); m != nil {
		n, err := strconv.Atoi(m[1])
		return step{index: n}, path[len(m[0]):], err == nil
	}
	if m := quotedStep.FindStringSubmatch(path); m != nil {
		key, err := strconv.Unquote(m[1])
		return step{key: key, index: -1, cut: len([]rune(key)) >= maxPathKey}, path[len(m[0]):], err == nil
	}
	return s, "", false
}

// into returns the offset and the value that a step leads to.
func (s step) into(v hujson.Value) (offset int, next hujson.Value, found bool) {
	switch of := v.Value.(type) {
	case *hujson.Object:
		for _, m := range of.Members {
			name, _ := m.Name.Value.(hujson.Literal)
			if key := name.String(); s.index < 0 && (key == s.key || s.cut && strings.HasPrefix(key, s.key)) {
				return m.Name.StartOffset, m.Value, true
			}
		}
	case *hujson.Array:
		if s.index >= 0 && s.index < len(of.Elements) {
			return of.Elements[s.index].StartOffset, of.Elements[s.index], true
		}
	}
	return 0, hujson.Value{}, false
}

// lineAndColumn returns where an offset is, from 1. The column is a byte.
func lineAndColumn(text []byte, offset int) (line, column int) {
	offset = min(offset, len(text))
	return 1 + bytes.Count(text[:offset], []byte("\n")), offset - bytes.LastIndexByte(text[:offset], '\n')
}
