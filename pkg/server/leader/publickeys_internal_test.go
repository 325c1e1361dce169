package leader

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

// TestKeysOfOneInstanceAreBounded: an instance that comes with ever new keys forgets its
// own, and takes nothing from the others.
func TestKeysOfOneInstanceAreBounded(t *testing.T) {
	k := newPublicKeys(func(fleet.InstanceID) bool { return true }, nil)
	k.claim("other", "theirs")
	for n := range 10 * maxHeld {
		if taken := k.claim("hostile", fmt.Sprint(n)); taken != nil {
			t.Fatalf("%d: %v", n, taken)
		}
	}
	if len(k.held["hostile"]) != maxHeld || len(k.holders) != maxHeld+1 {
		t.Errorf("%d keys of it, %d in all", len(k.held["hostile"]), len(k.holders))
	}
	if taken := k.claim("hostile", "new", "theirs"); !slices.Equal(taken, []string{"theirs"}) {
		t.Errorf("taken: %v", taken)
	}
	if taken := k.claim("other", "new"); taken != nil {
		t.Errorf("a claim that was refused in part holds: %v", taken)
	}
}
