package config

import "github.com/nstance/nstance/pkg/fleet"

// ForInstance is the group as it is for one of its instances: with what was asked
// for that instance alone, and the hashes that follow from it. It shares memory
// with g, which it does not change.
func (s *Shard) ForInstance(g fleet.Group, i fleet.Instance) (fleet.Group, error) {
	if i.Overrides == nil {
		return g, nil
	}
	if i.Overrides.InstanceType != "" {
		g.InstanceType = i.Overrides.InstanceType
	}
	g.Vars = Merge(g.Vars, i.Overrides.Vars)
	var err error
	g.Hashes, err = s.Hashes(g)
	return g, err
}
