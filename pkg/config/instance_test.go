package config_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// TestForInstance: an override changes what the instance is, and so its hashes,
// and leaves the group as it was.
func TestForInstance(t *testing.T) {
	s := &config.Shard{}
	g := fleet.Group{InstanceType: "small", Vars: map[string]any{"a": "1", "b": map[string]any{"c": "2"}}}
	g.Hashes, _ = s.Hashes(g)
	same, err := s.ForInstance(g, fleet.Instance{})
	if err != nil || same.Hashes != g.Hashes {
		t.Errorf("without overrides: hashes %v, %v; want %v", same.Hashes, err, g.Hashes)
	}
	own, err := s.ForInstance(g, fleet.Instance{Overrides: &fleet.Overrides{
		InstanceType: "large", Vars: map[string]any{"b": map[string]any{"d": "3"}},
	}})
	if err != nil || own.InstanceType != "large" || own.Hashes.Infra == g.Hashes.Infra || own.Hashes.Runtime == g.Hashes.Runtime {
		t.Errorf("with overrides: %+v, %v", own, err)
	}
	if b := own.Vars["b"].(map[string]any); own.Vars["a"] != "1" || b["c"] != "2" || b["d"] != "3" {
		t.Errorf("vars %v", own.Vars)
	}
	if len(g.Vars["b"].(map[string]any)) != 1 || g.InstanceType != "small" {
		t.Errorf("the group was changed: %+v", g)
	}
}
