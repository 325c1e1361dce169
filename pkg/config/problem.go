package config

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a config. Path names the field, such
// as groups.default.web.size; it is empty when the text as a whole is meant.
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

// Problems is every problem of a config, ordered by path. As an error it is
// never empty; Err makes that sure.
type Problems []Problem

// maxProblems is how many problems are kept. A text of megabytes can hold more
// mistakes than anyone reads.
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
		*ps = append(*ps, Problem{Message: fmt.Sprintf("more than %d problems: the rest is not listed", maxProblems)})
	}
}

// full reports whether there is no use in looking for more.
func (ps Problems) full() bool { return len(ps) > maxProblems }

// sorted orders by path, then message, the remark without a path last.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(compareBool(a.Path == "", b.Path == ""), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(ps)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// join appends a key to a path; keys that would read as several, such as
// kubelet.server, are quoted: certificates["kubelet.server"].
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

// have lists what would have been valid.
func have[V any](m map[string]V) string {
	switch n := len(m); {
	case n == 0:
		return "(there are none)"
	case n > maxProblems:
		return fmt.Sprintf("(have %d others)", n)
	}
	return "(have: " + strings.Join(someOf(sortedKeys(m)), ", ") + ")"
}

// someOf shortens a list that nobody would read to its end.
func someOf(names []string) []string {
	const most = 20
	if len(names) <= most {
		return names
	}
	return append(slices.Clip(names[:most]), "…")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
