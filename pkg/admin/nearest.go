package admin

import (
	"cmp"
	"slices"
	"strings"
)

// maxNearest bounds the names that Nearest returns.
const maxNearest = 3

// Nearest returns the names that a mistyped one may have meant, the most similar first.
func Nearest(name string, names []string) []string {
	type near struct {
		name  string
		edits int
	}
	var found []near
	for _, n := range names {
		edits := distance(strings.ToLower(name), strings.ToLower(n))
		// A third of the letters may be wrong. A name of which the beginning was typed counts as well.
		if edits <= max(1, min(len(name), len(n))/3) || len(name) > 2 && strings.HasPrefix(n, name) {
			found = append(found, near{n, edits})
		}
	}
	slices.SortFunc(found, func(a, b near) int { return cmp.Or(cmp.Compare(a.edits, b.edits), cmp.Compare(a.name, b.name)) })
	var out []string
	for _, n := range slices.Compact(found) {
		if len(out) < maxNearest {
			out = append(out, n.name)
		}
	}
	return out
}

// distance is the number of bytes to insert, remove, replace, or swap with the next, that turns a
// into b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// Meant returns ": did you mean A or B?" for the names nearest to a mistyped one; empty if none is
// near.
func Meant(name string, names []string) string {
	near := Nearest(name, names)
	if len(near) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(near, " or ") + "?"
}
