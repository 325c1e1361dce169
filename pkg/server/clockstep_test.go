//go:build stepclock

package server_test

import (
	"slices"
	"testing"
	"time"
)

// stepped moves the wall clock until the test ends.
func stepped(t *testing.T, by time.Duration) {
	t.Helper()
	time.StepClock(by)
	t.Cleanup(func() { time.StepClock(-by) })
}

// TestClockStepsWhileDraining: a drain that a leader began lasts as long as it should, whatever the
// wall clock says meanwhile.
func TestClockStepsWhileDraining(t *testing.T) {
	for name, by := range map[string]time.Duration{"ahead": 14 * time.Minute, "back": -14 * time.Minute, "by seconds": 40 * time.Second} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t, calm, replaced(`"default_drain_timeout": "0s"`, `"default_drain_timeout": "10m"`))
			id := s.living()[0]
			if err := p.delete(id); err != nil {
				t.Fatal(err)
			}
			p.awaitPhase(id, isDraining)
			began := time.Now()
			time.Sleep(time.Minute)
			stepped(t, by)
			for slices.Contains(s.living(), id) && time.Since(began) < time.Hour {
				time.Sleep(10 * time.Second)
			}
			if lasted := time.Since(began); lasted < 9*time.Minute || lasted > 12*time.Minute {
				t.Errorf("it lasted %s, want 10 minutes", lasted)
			}
		}))
	}
}
