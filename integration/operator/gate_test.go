//go:build integration

package operator

import (
	"slices"
	"testing"
)

// TestGate tells the core of what the operator does, which every change has to pass: a pool is
// scaled, the machine that was chosen goes, and a pod gets one of its own.
func TestGate(t *testing.T) {
	f := newFixture(t, nil)
	f.operate()
	f.running("web", 4)
	f.scale("web", 5)
	f.running("web", 5)
	before := f.settled("web", 5)

	victim := before[2]
	f.condemn(victim)
	f.scale("web", 4)
	f.running("web", 4)
	want := slices.DeleteFunc(before, func(id string) bool { return id == victim })
	if after := f.settled("web", 4); !slices.Equal(after, want) {
		t.Errorf("%v are there, want %v: %s was to go", after, want, victim)
	}

	f.runs(f.pod("first", nil))
	f.onDemand(1)
	f.deletePod("first")
	f.onDemand(0)
	f.settled("web", 4)
}
