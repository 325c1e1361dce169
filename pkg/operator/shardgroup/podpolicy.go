package shardgroup

import (
	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// annotationOnDemand is set on an object before its onDemand is pushed, until the shard has
// accepted its withdrawal. A group shows its on_demand, not the origin.
const annotationOnDemand = "nstance.dev/pushed-on-demand"

// onDemandToPush returns the on_demand to send to the shard; nil to leave it. An empty one
// withdraws what was pushed before and is no longer wanted. For a group of the static config
// it is nil, so that the rest of a change succeeds.
func onDemandToPush(want *v1beta1.OnDemand, have known) *nstancev1.OnDemand {
	switch {
	case have.group.GetIsStatic():
		return nil
	case want == nil && have.policy:
		return &nstancev1.OnDemand{}
	case want == nil, exists(have.group) && proto.Equal(onDemandOf(want), have.group.GetOnDemand()):
		return nil
	default:
		return onDemandOf(want)
	}
}

// ignoresOnDemand reports whether the group's static config, which takes precedence, has a
// different on_demand.
func ignoresOnDemand(want *v1beta1.OnDemand, g *nstancev1.GroupStatus) bool {
	return want != nil && g.GetIsStatic() && !proto.Equal(onDemandOf(want), g.GetOnDemand())
}

func onDemandOf(o *v1beta1.OnDemand) *nstancev1.OnDemand {
	return &nstancev1.OnDemand{
		Namespaces: o.Namespaces, NamespaceLabels: o.NamespaceLabels, InstanceTypes: o.InstanceTypes,
		Max: o.Max, MaxPerNamespace: o.MaxPerNamespace,
	}
}
