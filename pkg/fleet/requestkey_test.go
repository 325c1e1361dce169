package fleet_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

func TestCheckRequestKey(t *testing.T) {
	for _, good := range []string{
		"a", "7", "-", "_x", "nightly-7", "A.b_C-d", "a..b", "x.json", "00000000-0000-7000-8000-000000000000", strings.Repeat("k", 128),
	} {
		if err := fleet.CheckRequestKey(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", ".a", "a/b", "a b", "a\n", "\x00", "ä", "a%2f", strings.Repeat("k", 129)} {
		if fleet.CheckRequestKey(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
