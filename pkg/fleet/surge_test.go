package fleet_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

func TestSurgeIsACountOrAShare(t *testing.T) {
	for text, want := range map[string]map[int]int{
		"1":     {0: 1, 1: 1, 1000: 1},
		"3":     {0: 3, 10: 3},
		"5%":    {0: 1, 1: 1, 20: 1, 21: 2, 1000: 50},
		"100%":  {0: 1, 7: 7},
		"10000": {1: 10000},
	} {
		var s fleet.Surge
		if err := s.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if s.String() != text {
			t.Errorf("%q is written as %q", text, s)
		}
		for size, n := range want {
			if got := s.Of(size); got != n {
				t.Errorf("%q of %d: %d, want %d", text, size, got, n)
			}
		}
	}
	if got := (fleet.Surge{}).Of(100); got != 1 {
		t.Errorf("the zero value: %d, want 1", got)
	}
}

func TestSurgeRefusesOtherTexts(t *testing.T) {
	for _, text := range []string{"", "0", "-1", "1.5", "%", "0%", "101%", "5 %", "10001", "99999999999999999999", "+1", "all"} {
		s := fleet.Surge{Count: 7}
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: accepted as %v", text, s)
		}
		if s.Count != 7 {
			t.Errorf("%q changed the value to %v", text, s)
		}
	}
}
