package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

func TestPhaseMoves(t *testing.T) {
	const want = `
pending  -> running draining deleting deleted
running  -> draining deleting
draining -> deleting
deleting -> deleted
deleted  ->
`
	var got strings.Builder
	got.WriteString("\n")
	for _, from := range fleet.Phases() {
		line := fmt.Sprintf("%-8s ->", from)
		for _, to := range fleet.Phases() {
			if from.CanMove(to) {
				line += " " + string(to)
			}
		}
		got.WriteString(line + "\n")
	}
	if got.String() != want {
		t.Errorf("got%s\nwant%s", got.String(), want)
	}
}

func TestPhaseWords(t *testing.T) {
	for _, p := range fleet.Phases() {
		if !p.Valid() {
			t.Errorf("%q is a phase", p)
		}
		if active := p == fleet.Pending || p == fleet.Running; p.Active() != active {
			t.Errorf("%q: active is %v", p, p.Active())
		}
	}
	for _, p := range []fleet.Phase{"", "unhealthy", "Pending"} {
		if p.Valid() || p.Active() || p.CanMove(fleet.Deleted) || fleet.Pending.CanMove(p) {
			t.Errorf("%q is no phase", p)
		}
	}
}
