package observe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/observe"
)

var errStore = errors.New("the store is down")

// twice is a back-off of two seconds per failure.
func twice(failures int) time.Duration { return time.Duration(failures) * 2 * time.Second }

// TestSteps: one at a time for an instance or a group, with back-off while they fail.
func TestSteps(t *testing.T) {
	for _, id := range []fleet.InstanceID{"i", ""} {
		s := observe.New(records{}, true, began)
		start := func(now float64, want bool, after time.Time) {
			t.Helper()
			if ok, notBefore := s.StartStep(web, id, at(now)); ok != want || !notBefore.Equal(after) {
				t.Errorf("%q started at %v s: %t, or not before %v", id, now, ok, notBefore)
			}
		}
		end := func(now float64, err error, want bool) {
			t.Helper()
			if repeated := s.EndStep(web, id, err, twice, at(now)); repeated != want {
				t.Errorf("%q ended at %v s: repeated %t", id, now, repeated)
			}
		}
		start(1, true, time.Time{})
		start(1, false, time.Time{}) // not known when the first one ends
		end(2, errStore, false)
		start(3, false, at(4))
		start(4, true, time.Time{})
		end(4, errStore, true)
		start(7, false, at(8))
		start(8, true, time.Time{})
		end(9, errors.New("another"), false)
		start(15, true, time.Time{})
		end(15, nil, false)
		start(15, true, time.Time{})
		end(15, errStore, false)
		start(17, true, time.Time{}) // the back-off began anew
		end(17, nil, false)
		if _, groups, _ := s.Entries(); groups != 0 {
			t.Errorf("%q: %d groups are left", id, groups)
		}
	}
}

// TestForgottenEdits: a group edit that is not repeated leaves nothing behind.
func TestForgottenEdits(t *testing.T) {
	s := observe.New(records{}, true, began)
	s.StartStep(web, "", at(0))
	s.EndStep(web, "", errStore, twice, at(0))
	for _, c := range []struct {
		now  float64
		want int
	}{{2, 1}, {62, 1}, {63, 0}} {
		s.Forget(nil, at(c.now))
		if _, groups, _ := s.Entries(); groups != c.want {
			t.Errorf("%d groups after %v s, want %d", groups, c.now, c.want)
		}
	}
}
