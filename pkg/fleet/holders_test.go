package fleet_test

import (
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

func TestHolders(t *testing.T) {
	const a, b = fleet.InstanceID("a"), fleet.InstanceID("b")
	h := fleet.Holders[string]{}
	h.Add("web", a)
	h.Add("web", b)
	h.Add("web", a)
	read := h["web"]
	h.Remove("web", a)
	h.Remove("web", "c")
	h.Remove("db", a)
	if !slices.Equal(read, []fleet.InstanceID{a, b}) || !slices.Equal(h["web"], []fleet.InstanceID{b}) {
		t.Errorf("read %v, then %v", read, h["web"])
	}
	if h.Remove("web", b); len(h) != 0 {
		t.Errorf("left %v", h)
	}
}
