package ondemand

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// place is a shard, and its state of the requested group.
type place struct {
	shard string
	// zone is that of its machines; empty: unknown.
	zone string
	// synced: the other fields are current.
	synced bool
	// fresh: the shard is only beginning to report its state, or its leader is changing. The
	// shard counts as unreachable after that.
	fresh bool
	// has: the shard has the group.
	has bool
	// failing: the group's creates currently fail.
	failing bool
	// policy is what pods may have of the group; nil: nothing.
	policy *fleet.OnDemand
	// instanceType is the group's own.
	instanceType string
	// all counts its on-demand instances, requested ones included; beside counts those for
	// pods of the Namespace.
	all, beside int
}

// asker is a pod: its Namespace, and its constraints.
type asker struct {
	namespace string
	labels    map[string]string
	needs     needs
}

// choose returns the shard of a pod's instance: one that the pod can use, where the group
// allows it and has room, then where creates succeed, then with the fewest machines, then by
// name. If shard is empty,
// refused says why, and is empty too while that is not known yet.
func choose(places []place, a ask, by asker) (shard, refused string) {
	var can []place
	waits := len(places) == 0
	why := map[string][]string{}
	for _, p := range places {
		reason := by.needs.excludesName(p.shard)
		if reason == "" && p.fresh { // its policy will be known in a moment
			waits = true
			continue
		}
		if reason == "" {
			reason = p.refuses(a, by)
		}
		if reason == "" {
			can = append(can, p)
		} else {
			why[reason] = append(why[reason], p.shard)
		}
	}
	if len(can) > 0 {
		return slices.MinFunc(can, func(a, b place) int {
			return cmp.Or(yes(a.failing)-yes(b.failing), cmp.Compare(a.all, b.all), cmp.Compare(a.shard, b.shard))
		}).shard, ""
	}
	if waits {
		return "", ""
	}
	parts := make([]string, 0, len(why))
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		slices.Sort(why[reason])
		parts = append(parts, fmt.Sprintf("shard %s: %s", strings.Join(why[reason], ", "), reason))
	}
	return "", fmt.Sprintf("no instance of group %s: %s", a.group, strings.Join(parts, "; "))
}

// refuses returns why a pod gets nothing there, and what would change that; empty if it may
// have an instance.
func (p place) refuses(a ask, by asker) string {
	o, excluded := p.policy, by.needs.excludes(p.facts())
	switch {
	case !p.synced:
		return "the shard does not answer at present"
	case excluded != "":
		return excluded
	case !p.has:
		return "the shard has no such group"
	case o == nil:
		return "the group allows pods no instances: set its on_demand, with their Namespaces and a maximum"
	case !o.AllowsNamespace(by.namespace, by.labels):
		return fmt.Sprintf("the group allows pods of Namespace %s no instances: on_demand.namespaces does not name it, "+
			"and its labels do not match on_demand.namespace_labels", by.namespace)
	case !o.AllowsType(a.instanceType, p.instanceType):
		types := slices.DeleteFunc(append([]string{p.instanceType}, o.InstanceTypes...), func(s string) bool { return s == "" })
		return fmt.Sprintf("instance type %.80q is neither the group's own nor one of its on_demand.instance_types (allowed: %s)",
			a.instanceType, strings.Join(types, ", "))
	case p.all >= o.Max:
		return fmt.Sprintf("the group has reached its on_demand.max of %d instances", o.Max)
	case p.beside >= o.PerNamespace():
		return fmt.Sprintf("for pods of Namespace %s the group has reached its on_demand.max_per_namespace of %d instances",
			by.namespace, o.PerNamespace())
	}
	return ""
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}

// policyOf returns a group's policy from a shard; nil: pods get nothing.
func policyOf(o *nstancev1.OnDemand) *fleet.OnDemand {
	if o == nil {
		return nil
	}
	return &fleet.OnDemand{
		Namespaces: o.GetNamespaces(), NamespaceLabels: o.GetNamespaceLabels(), InstanceTypes: o.GetInstanceTypes(),
		Max: int(o.GetMax()), MaxPerNamespace: int(o.GetMaxPerNamespace()),
	}
}
