package identities

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

// TestKeysOfOneInstanceAreBounded: an instance with ever new keys drops its own, and affects no
// others.
func TestKeysOfOneInstanceAreBounded(t *testing.T) {
	k := NewKeys(func(fleet.InstanceID) bool { return true }, nil)
	k.Claim("other", "theirs")
	for n := range 10 * maxHeld {
		if taken := k.Claim("hostile", fmt.Sprint(n)); taken != nil {
			t.Fatalf("%d: %v", n, taken)
		}
	}
	if len(k.held["hostile"]) != maxHeld || len(k.holders) != maxHeld+1 {
		t.Errorf("%d keys of it, %d in all", len(k.held["hostile"]), len(k.holders))
	}
	if taken := k.Claim("hostile", "new", "theirs"); !slices.Equal(taken, []string{"theirs"}) {
		t.Errorf("taken: %v", taken)
	}
	if taken := k.Claim("other", "new"); taken != nil {
		t.Errorf("a claim that was refused in part holds: %v", taken)
	}
}
