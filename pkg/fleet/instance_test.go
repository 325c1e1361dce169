package fleet_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

// TestOutdated: only the Infra hash counts, and only if both are known.
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

// TestAddKeys: the first key is not among the others, keys are not repeated, and the oldest
// beyond the limit are dropped.
func TestAddKeys(t *testing.T) {
	i := fleet.Instance{PublicKeySHA256: "first"}
	if i.AddKeys("first") || !i.AddKeys("a", "b", "a") || i.AddKeys("b", "first") {
		t.Errorf("%v", i.OtherKeysSHA256)
	}
	if !slices.Equal(i.OtherKeysSHA256, []string{"a", "b"}) {
		t.Errorf("%v", i.OtherKeysSHA256)
	}
	for n := range fleet.MaxOtherKeys {
		i.AddKeys(fmt.Sprint(n))
	}
	if n := len(i.OtherKeysSHA256); n != fleet.MaxOtherKeys || i.OtherKeysSHA256[0] != "0" || i.OtherKeysSHA256[n-1] != fmt.Sprint(n-1) {
		t.Errorf("%d: %v", n, i.OtherKeysSHA256)
	}
}
