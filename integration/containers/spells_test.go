//go:build integration

package containers_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/integration/containers"
)

// TestSpells: consecutive servers have one spell each; a server that acts once during another's
// spell is visible.
func TestSpells(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	for name, c := range map[string]struct {
		calls string // one server per second
		want  []containers.Spell
	}{
		"none": {"", nil},
		"one":  {"aa", []containers.Spell{{Server: "a", First: at(0), Last: at(1), Calls: 2}}},
		"in turn": {"aab", []containers.Spell{
			{Server: "a", First: at(0), Last: at(1), Calls: 2}, {Server: "b", First: at(2), Last: at(2), Calls: 1},
		}},
		"at once": {"abab", []containers.Spell{
			{Server: "a", First: at(0), Last: at(0), Calls: 1}, {Server: "b", First: at(1), Last: at(1), Calls: 1},
			{Server: "a", First: at(2), Last: at(2), Calls: 1}, {Server: "b", First: at(3), Last: at(3), Calls: 1},
		}},
	} {
		var calls []containers.Call
		for second, server := range c.calls {
			calls = append(calls, containers.Call{Server: string(server), Began: at(second)})
		}
		if got := containers.Spells(calls); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
