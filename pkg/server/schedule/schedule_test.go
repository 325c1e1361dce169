package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/schedule"
)

func named(name string) fleet.GroupKey { return fleet.GroupKey{Tenant: "default", Name: name} }

func popped(s *schedule.Schedule, now time.Time) (names []string) {
	for {
		key, ok := s.Pop(now)
		if !ok {
			return names
		}
		names = append(names, key.Name)
	}
}

func TestPop(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := schedule.New(func() []fleet.GroupKey { return []fleet.GroupKey{named("x"), named("y"), named("x")} })
	s.Mark(named("a"), named("b"), named("a"))
	s.MarkAt(named("c"), now.Add(2*time.Second))
	s.MarkAt(named("c"), now.Add(time.Second))
	s.MarkAt(named("c"), now.Add(3*time.Second))
	s.MarkAt(named("d"), time.Time{})
	if _, idle := s.Next(); idle {
		t.Error("idle with two groups due")
	}
	if got := popped(s, now); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("due are %v", got)
	}
	if next, idle := s.Next(); !idle || !next.Equal(now.Add(time.Second)) {
		t.Errorf("next at %v, idle %v; want the earliest of three times", next, idle)
	}
	if got := popped(s, now.Add(time.Second)); !slices.Equal(got, []string{"c"}) || s.Entries() != 0 {
		t.Errorf("a second later due are %v, and %d are left", got, s.Entries())
	}
	s.MarkAll()
	if got := popped(s, now); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("of all groups due are %v", got)
	}
}

// TestPopTogether: groups that become due at once are popped in the same order each time.
func TestPopTogether(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var names []string
	for n := range 20 {
		names = append(names, fmt.Sprintf("g%02d", n))
	}
	s := schedule.New(nil)
	for _, name := range names {
		s.MarkAt(named(name), now)
	}
	if got := popped(s, now); !slices.Equal(got, names) {
		t.Errorf("popped %v", got)
	}
}

// TestUnhurriedNewsWait: the delay grows with the duration of a pass, up to half a second.
func TestUnhurriedNewsWait(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for took, want := range map[time.Duration]time.Duration{
		0: 0, 10 * time.Millisecond: 100 * time.Millisecond, time.Second: 500 * time.Millisecond,
	} {
		s := schedule.New(nil)
		s.Took(took)
		s.MarkSoon(now, named("a"))
		if next, _ := s.Next(); next.Sub(now) != want {
			t.Errorf("after a pass of %v the next is in %v, want %v", took, next.Sub(now), want)
		}
		select {
		case <-s.Woken():
		default:
			t.Error("no wake-up")
		}
	}
}

// BenchmarkPop measures a pass of one group, of which each schedules the next one, beside 9,000 others.
func BenchmarkPop(b *testing.B) {
	now := time.Unix(1_700_000_000, 0)
	s := schedule.New(nil)
	for n := range 9000 {
		s.MarkAt(named(fmt.Sprint(n)), now.Add(time.Duration(n)*time.Second))
	}
	for b.Loop() {
		next, _ := s.Next()
		key, ok := s.Pop(next)
		if !ok {
			b.Fatal("nothing is due")
		}
		s.MarkAt(key, next.Add(9000*time.Second))
	}
}
