//go:build integration

package containers

import "time"

// Spell is a time in which one server, and no other, changed something.
type Spell struct {
	Server      string
	First, Last time.Time // its first and its last call
	Calls       int
}

// Spells are the calls, which are in their order, as the spells that follow each other.
// Two servers that act at the same time show as more spells than there were leaders.
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
