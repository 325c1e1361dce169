package config

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Problem is one mistake in a config. Path names the field, such as groups.default.web.size;
// it is empty for the whole text.
type Problem struct {
	Path    string
	Message string
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// Problems are the problems of a config, sorted by path. Use Err to get an error: as one, it is
// never empty.
type Problems []Problem

// maxProblems bounds the list: a large text can have more mistakes than are useful.
const maxProblems = 1000

func (ps Problems) Error() string {
	if len(ps) == 1 {
		return ps[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems:", len(ps))
	for _, p := range ps {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// Err returns ps as an error, nil when there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

func (ps *Problems) addf(path, format string, args ...any) {
	switch {
	case len(*ps) < maxProblems:
		*ps = append(*ps, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	case len(*ps) == maxProblems:
		*ps = append(*ps, Problem{Message: fmt.Sprintf("more than %d problems: the others are not listed", maxProblems)})
	}
}

// full reports whether the list is full, so that further checks can be skipped.
func (ps Problems) full() bool { return len(ps) > maxProblems }

// sorted orders by path, then message; problems without a path come last.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		paths := cmp.Compare(a.Path, b.Path)
		if a.Path == "" || b.Path == "" {
			paths = -paths
		}
		return cmp.Or(paths, cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(ps)
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// join appends a key to a path. Keys that would be ambiguous, such as kubelet.server, are
// quoted: certificates["kubelet.server"].
func join(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return fmt.Sprintf("%s[%.80q]", path, key)
	case path == "":
		return key
	}
	return path + "." + key
}

func at(path string, index int) string { return fmt.Sprintf("%s[%d]", path, index) }

// under reports whether path is root or lies below it.
func under(path, root string) bool {
	if root == "" {
		return true
	}
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// have lists the valid names.
func have[V any](m map[string]V) string {
	switch n := len(m); {
	case n == 0:
		return "(there are none)"
	case n > maxProblems:
		return fmt.Sprintf("(have %d others)", n)
	}
	return "(have: " + strings.Join(someOf(sortedKeys(m)), ", ") + ")"
}

// someOf truncates a list for a message.
func someOf(names []string) []string {
	const most = 20
	if len(names) <= most {
		return names
	}
	return append(slices.Clip(names[:most]), "…")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
