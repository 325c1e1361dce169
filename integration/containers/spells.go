//go:build integration

package containers

import "time"

// Spell is a period in which only one server made changes.
type Spell struct {
	Server      string
	First, Last time.Time // its first and its last call
	Calls       int
}

// Spells groups calls, which are in order, into consecutive spells. Two servers that act at the
// same time cause more spells than there were leaders.
func Spells(calls []Call) (spells []Spell) {
	for _, c := range calls {
		if n := len(spells); n == 0 || spells[n-1].Server != c.Server {
			spells = append(spells, Spell{Server: c.Server, First: c.Began})
		}
		now := &spells[len(spells)-1]
		now.Last = c.Began
		now.Calls++
	}
	return spells
}
