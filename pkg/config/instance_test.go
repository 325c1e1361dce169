package config_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// TestForInstance: an override changes the instance's definition and its hashes, and leaves the
// group unchanged.
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

// TestStoredOverrides: numbers from a record equal those of a config, so that a hash does not
// depend on a value's source.
func TestStoredOverrides(t *testing.T) {
	s := &config.Shard{}
	own, err := s.ForInstance(fleet.Group{}, fleet.Instance{Overrides: &fleet.Overrides{
		Vars: map[string]any{"n": 1e6, "list": []any{map[string]any{"m": 2.0}}},
	}})
	if err != nil || own.Vars["n"] != int64(1000000) || own.Vars["list"].([]any)[0].(map[string]any)["m"] != int64(2) {
		t.Errorf("vars %#v, %v", own.Vars, err)
	}
}

// TestCheckOverrides: fields that are invalid for a group are invalid for one instance.
func TestCheckOverrides(t *testing.T) {
	s := &config.Shard{}
	many := map[string]any{}
	for n := range 999 {
		many[fmt.Sprint("v", n)] = 1
	}
	arch := config.Checks{InstanceTypeArch: func(string) (string, bool) { return "arm64", true }}
	for name, c := range map[string]struct {
		group fleet.Group
		ask   fleet.Overrides
		path  string // empty: allowed
	}{
		"nothing": {},
		"something": {ask: fleet.Overrides{InstanceType: "large", Vars: map[string]any{"a": map[string]any{"b": 1.5}}},
			group: fleet.Group{Arch: "arm64"}},
		"null":         {ask: fleet.Overrides{Vars: map[string]any{"a": []any{nil}}}, path: "vars.a[0]"},
		"no number":    {ask: fleet.Overrides{Vars: map[string]any{"a": math.NaN()}}, path: "vars"},
		"too many":     {ask: fleet.Overrides{Vars: many}, group: fleet.Group{Vars: map[string]any{"x": 1, "y": 2}}, path: "vars"},
		"too much":     {ask: fleet.Overrides{Vars: map[string]any{"a": strings.Repeat("x", config.MaxOverrides)}}, path: "vars"},
		"a long type":  {ask: fleet.Overrides{InstanceType: strings.Repeat("x", 65)}, group: fleet.Group{Arch: "arm64"}, path: "instance_type"},
		"an escape":    {ask: fleet.Overrides{InstanceType: "ev\x1b[31mil"}, group: fleet.Group{Arch: "arm64"}, path: "instance_type"},
		"a line break": {ask: fleet.Overrides{InstanceType: "t3\nFORGED"}, group: fleet.Group{Arch: "arm64"}, path: "instance_type"},
		"a name":       {ask: fleet.Overrides{Vars: map[string]any{"a": map[string]any{"\x1b": 1}}}, path: "vars.a"},
		"another arch": {ask: fleet.Overrides{InstanceType: "large"}, group: fleet.Group{Arch: "amd64"}, path: "instance_type"},
	} {
		err := s.CheckOverrides(c.group, c.ask, arch)
		var problems config.Problems
		switch {
		case c.path == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.path != "" && (!errors.As(err, &problems) || problems[0].Path != c.path):
			t.Errorf("%s: %v, want it at %s", name, err, c.path)
		}
	}
}
