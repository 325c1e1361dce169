package config

import (
	"encoding/json"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
)

// ForInstance returns the group as it applies to one of its instances: with the instance's
// overrides and the resulting hashes. It shares memory with g, which it does not change.
func (s *Shard) ForInstance(g fleet.Group, i fleet.Instance) (fleet.Group, error) {
	if i.Overrides == nil {
		return g, nil
	}
	if i.Overrides.InstanceType != "" {
		g.InstanceType = i.Overrides.InstanceType
	}
	// Records have numbers as in JSON; templates and hashes need those of a config.
	vars, err := normalizeMap(i.Overrides.Vars)
	if err != nil {
		return g, err
	}
	g.Vars = Merge(g.Vars, vars)
	g.Hashes, err = s.Hashes(g)
	return g, err
}

// MaxOverrides bounds the vars of one on-demand instance, in bytes of JSON, because all
// records of a shard are held in memory.
const MaxOverrides = 64 << 10

// CheckOverrides checks the overrides of one on-demand instance by the rules for a group's
// fields. The error is a Problems whose paths begin with instance_type, vars, or args or
// userdata for problems of the provider.
func (s *Shard) CheckOverrides(g fleet.Group, o fleet.Overrides, checks Checks) error {
	vars, err := normalizeMap(o.Vars)
	if err != nil {
		return Problems{{Path: "vars", Message: err.Error()}}
	}
	v := &validator{shard: s}
	v.vars("vars", vars)
	if n := len(Merge(g.Vars, vars)); n > maxVars {
		v.addf("vars", "%d vars after merging: at most %d are allowed", n, maxVars)
	}
	if text, err := json.Marshal(vars); err != nil || len(text) > MaxOverrides {
		v.addf("vars", "%d bytes of JSON: at most %d are allowed", len(text), MaxOverrides)
	}
	checkInstanceType(v, "instance_type", o.InstanceType)
	if err := checks.archFits(o.InstanceType, g.Arch); err != nil {
		v.addf("instance_type", "%v", err)
	}
	if len(v.problems) == 0 {
		v.problems = s.refusedOverrides(g, o, checks)
	}
	if err := v.problems.sorted().Err(); err != nil {
		return fmt.Errorf("check overrides: %w", err)
	}
	return nil
}
