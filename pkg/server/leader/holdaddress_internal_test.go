package leader

import (
	"testing"
	"time"
)

// TestAddressPace simulates terms in which a check takes no time.
func TestAddressPace(t *testing.T) {
	const sweep = 2 * time.Minute
	for name, c := range map[string]struct {
		found func(check int) addressFound // of each check, from the first
		want  []time.Duration              // the first pauses
		most  int                          // checks in the first half hour
		least int
	}{
		"held from the start": {
			func(int) addressFound { return addressHeld }, []time.Duration{addressLook, addressLook}, 100 + 14, 100,
		},
		"moved once": {
			func(n int) addressFound {
				if n == 0 {
					return addressMoved
				}
				return addressHeld
			}, []time.Duration{addressLook, addressLook, addressLook}, 100 + 15, 100,
		},
		"taken away by a late call": {
			func(n int) addressFound {
				if n < 2 {
					return addressMoved
				}
				return addressHeld
			}, []time.Duration{addressLook, addressLook, addressLook}, 100 + 16, 100,
		},
		"taken away again and again": {
			func(int) addressFound { return addressMoved },
			[]time.Duration{addressLook, addressLook, addressLook, 2 * addressLook, 4 * addressLook, 8 * addressLook}, 25, 14,
		},
		"unknown": {
			func(int) addressFound { return addressFailed }, []time.Duration{addressRetry, addressRetry}, 361, 300,
		},
	} {
		begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		now, checks := begin, 0
		for pace := newAddressPace(begin); now.Sub(begin) < 30*time.Minute; checks++ {
			pause := pace.next(c.found(checks), now, sweep)
			if checks < len(c.want) && pause != c.want[checks] {
				t.Errorf("%s: pause %d is %v, want %v", name, checks, pause, c.want[checks])
			}
			if pause <= 0 || pause > sweep {
				t.Fatalf("%s: a pause of %v", name, pause)
			}
			now = now.Add(pause)
		}
		if checks > c.most || checks < c.least {
			t.Errorf("%s: %d checks in half an hour, want %d to %d", name, checks, c.least, c.most)
		}
	}
	if pause := newAddressPace(time.Time{}).next(addressHeld, time.Time{}, time.Second); pause != time.Second {
		t.Errorf("with a sweep each second: a pause of %v", pause)
	}
}
