package fleet_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

// TestOutdated: what machines are made from counts, and only where it is known.
func TestOutdated(t *testing.T) {
	for _, c := range []struct {
		was, now fleet.Hashes
		want     bool
	}{
		{fleet.Hashes{Infra: "a"}, fleet.Hashes{Infra: "b"}, true},
		{fleet.Hashes{Infra: "a", Runtime: "x"}, fleet.Hashes{Infra: "a", Runtime: "y"}, false},
		{fleet.Hashes{}, fleet.Hashes{Infra: "b"}, false},
		{fleet.Hashes{Infra: "a"}, fleet.Hashes{}, false},
	} {
		if got := c.was.Outdated(c.now); got != c.want {
			t.Errorf("made from %+v, now %+v: outdated %t, want %t", c.was, c.now, got, c.want)
		}
	}
}
