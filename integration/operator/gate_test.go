//go:build integration

package operator

import (
	"slices"
	"testing"
)

// TestGate tells the core of what the operator does, which every change has to pass: a pool is
// scaled, the machine that was chosen goes, and a pod gets one of its own.
func TestGate(t *testing.T) {
	w := begin(t, nil)
	w.operate()
	w.running("web", 4)
	w.scale("web", 5)
	w.running("web", 5)
	before := w.settled("web", 5)

	victim := before[2]
	w.condemn(victim)
	w.scale("web", 4)
	w.running("web", 4)
	want := slices.DeleteFunc(before, func(id string) bool { return id == victim })
	if after := w.settled("web", 4); !slices.Equal(after, want) {
		t.Errorf("%v are there, want %v: %s was to go", after, want, victim)
	}

	w.runs(w.pod("first", nil))
	w.onDemand(1)
	w.deletePod("first")
	w.onDemand(0)
	w.settled("web", 4)
}
