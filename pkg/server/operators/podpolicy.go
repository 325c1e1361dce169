package operators

import (
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// onDemandOf returns a change of a group's on-demand settings, or nil.
func onDemandOf(o *nstancev1.OnDemand) *fleet.OnDemand {
	if o == nil {
		return nil
	}
	return &fleet.OnDemand{
		Namespaces: o.GetNamespaces(), NamespaceLabels: o.GetNamespaceLabels(), InstanceTypes: o.GetInstanceTypes(),
		Max: int(o.GetMax()), MaxPerNamespace: int(o.GetMaxPerNamespace()),
	}
}

func showOnDemand(o *fleet.OnDemand) *nstancev1.OnDemand {
	if o == nil {
		return nil
	}
	return &nstancev1.OnDemand{
		Namespaces: o.Namespaces, NamespaceLabels: o.NamespaceLabels, InstanceTypes: o.InstanceTypes,
		Max: int32(o.Max), MaxPerNamespace: int32(o.MaxPerNamespace),
	}
}
