package observe_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
)

// TestCreates: an instance is busy from the start of its create to the end, and a failed create
// is due again after its back-off.
func TestCreates(t *testing.T) {
	known := records{}
	known.pending("i")
	s := observe.New(known, true, began)
	look := func(now float64, busy bool, retryAt time.Time, lastError string) {
		t.Helper()
		i := joined(s, now).Instances[0]
		if i.Busy != busy || !i.RetryAt.Equal(retryAt) || s.Get("i").LastError != lastError {
			t.Errorf("after %v s: busy %t, due at %v, because of %q", now, i.Busy, i.RetryAt, s.Get("i").LastError)
		}
	}
	start := func(now float64, want bool) {
		t.Helper()
		if _, ok := s.StartCreate("i", "", false, at(now)); ok != want {
			t.Errorf("started after %v s: %t", now, ok)
		}
	}
	start(1, true)
	start(1, false)
	look(1, true, time.Time{}, "")
	s.FailCreate("i", errStore, twice, at(2))
	look(2, false, at(4), errStore.Error())
	start(4, true)
	s.FailCreate("i", errStore, twice, at(4))
	look(4, false, at(8), errStore.Error())
	start(8, true)
	s.EndCreate("i", errStore, at(9)) // was put off
	look(9, false, time.Time{}, errStore.Error())
	start(9, true)
	s.FailCreate("i", errStore, nil, at(9))
	look(9, false, time.Time{}, errStore.Error())
	start(9, true)
	s.EndCreate("i", nil, at(10))
	look(10, false, time.Time{}, "")
	start(10, true)
	s.FailCreate("i", errStore, twice, at(10))
	look(10, false, at(12), errStore.Error()) // the back-off began anew
	s.RetryAt("i", time.Time{})
	look(10, false, time.Time{}, errStore.Error())
}

// TestRefusal: an error that only says that the attempt was used is replaced by the last definite
// refusal.
func TestRefusal(t *testing.T) {
	s := observe.New(records{}, true, began)
	used, quota := fmt.Errorf("again: %w", provider.ErrUsed), fmt.Errorf("call: %w", provider.ErrQuota)
	spent := fmt.Errorf("once more: %w", provider.ErrSpent)
	for n, c := range []struct{ err, want error }{
		{used, used}, {quota, quota}, {errStore, errStore}, {used, quota}, {spent, quota}, {nil, nil}, {used, used},
	} {
		if got := s.Refusal("i", c.err); !errors.Is(got, c.want) {
			t.Errorf("error %d is reported as %v, want %v", n, got, c.want)
		}
	}
}

// TestDoubtfulRecords are known as such until a write succeeds.
func TestDoubtfulRecords(t *testing.T) {
	s := observe.New(records{}, true, began)
	for _, is := range []bool{true, false} {
		s.DoubtRecord("i", is)
		if got := s.Get("i").RecordDoubtful; got != is {
			t.Errorf("doubtful %t, want %t", got, is)
		}
	}
}
