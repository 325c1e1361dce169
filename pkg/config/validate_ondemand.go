package config

import "github.com/nstance/nstance/pkg/fleet"

// checkOnDemand checks a group's on_demand.
func checkOnDemand(f *findings, path string, o *fleet.OnDemand) {
	if o == nil {
		return
	}
	o.Check(func(field, message string) { f.addf(path+"."+field, "%s", message) })
}
