package shardstest

import (
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func policyOf(o *nstancev1.OnDemand) *fleet.OnDemand {
	if o == nil {
		return nil
	}
	return &fleet.OnDemand{
		Namespaces: o.GetNamespaces(), NamespaceLabels: o.GetNamespaceLabels(), InstanceTypes: o.GetInstanceTypes(),
		Max: int(o.GetMax()), MaxPerNamespace: int(o.GetMaxPerNamespace()),
	}
}

// AllowPods sets a group's on_demand policy; nil removes it.
func (s *Shard) AllowPods(name string, policy *nstancev1.OnDemand) {
	s.world.tb.Helper()
	s.change(func(time.Time) {
		g := s.groups[name]
		if g == nil {
			s.tb.Errorf("shard %s has no group %s", s.id, name)
			return
		}
		g.onDemand = policy
		s.redefine(g)
	})
}

// onDemand counts a group's on-demand instances: all, and those for pods of a Namespace.
func (s *state) onDemand(g *group, namespace string) (all, beside int) {
	for _, i := range s.instances {
		if i.OnDemand && i.Group == g.name && i.Phase != deleted {
			all++
			if i.Namespace == namespace {
				beside++
			}
		}
	}
	return all, beside
}

// admits returns why a group does not allow an on-demand instance.
func (s *state) admits(g *group, req *nstancev1.CreateInstanceRequest) error {
	o, namespace := policyOf(g.onDemand), req.GetNamespace()
	all, beside := s.onDemand(g, namespace)
	switch {
	case o == nil && namespace != "":
		return rpc.Precondition.Errorf("group %s creates no instances for pods: set its on_demand", g.name)
	case o == nil:
		return nil
	case namespace != "" && len(o.NamespaceLabels) == 0 && !o.AllowsNamespace(namespace, nil):
		return rpc.Precondition.Errorf("namespace: group %s creates no instances for pods of %s", g.name, namespace)
	case !o.AllowsType(req.GetInstanceType(), withDefault(g.instanceType)):
		return rpc.InvalidField("instance_type",
			fmt.Sprintf("%q: want the group's own or one of its on_demand.instance_types", req.GetInstanceType()))
	case all >= o.Max:
		return rpc.Exhausted.Errorf("group %s has %d on-demand instances, and its on_demand.max is %d", g.name, all, o.Max)
	case namespace != "" && beside >= o.PerNamespace():
		return rpc.Exhausted.Errorf("group %s has %d on-demand instances for pods of %s, and its on_demand.max_per_namespace is %d",
			g.name, beside, namespace, o.PerNamespace())
	}
	return nil
}
