package ondemand

import (
	"fmt"
	"strings"
	"sync"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
)

// This file enforces a group's on_demand limits on the server. Operators apply them too, but are
// not trusted alone.

// reserve returns an error if an instance may not be created. The caller calls end once when its
// record exists, or will not be written.
func (o *Service) reserve(i fleet.Instance) (end func(), err error) {
	g, _ := o.cfg.Group(i.GroupKey())
	if err := allowed(g, i); err != nil {
		return nil, err
	}
	return o.limits.enter(g, i, o.cfg.Records.Group)
}

// allowed checks an instance against a group's on_demand, except for the counts. Only the
// operator knows the labels of Namespaces.
func allowed(g fleet.Group, i fleet.Instance) error {
	o := g.OnDemand
	switch {
	case o == nil && i.Namespace != "":
		return rpc.Precondition.Errorf("group %s creates no instances for pods: set its on_demand, which names the allowed "+
			"Namespaces and the limits", g.Key.Name)
	case o == nil:
		return nil
	case i.Namespace != "" && len(o.NamespaceLabels) == 0 && !o.AllowsNamespace(i.Namespace, nil):
		return rpc.Precondition.Errorf("namespace: group %s creates no instances for pods of %s: its on_demand.namespaces are %s",
			g.Key.Name, i.Namespace, strings.Join(o.Namespaces, ", "))
	case !o.AllowsType(i.Provider.InstanceType, g.InstanceType) && i.Provider.InstanceType != g.AskedFor().InstanceType:
		types := append([]string{g.InstanceType}, o.InstanceTypes...)
		return &rpc.ViolationsError{Message: "invalid instance", Violations: []rpc.Violation{{
			Field: "instance_type",
			Description: fmt.Sprintf("%.80q: want the group's own or one of its on_demand.instance_types (have: %s)",
				i.Provider.InstanceType, strings.Trim(strings.Join(types, ", "), ", ")),
		}}}
	}
	return nil
}

// limits counts the on-demand instances of groups, including those whose record is not written
// yet, each once: concurrent calls can't exceed a limit together. Safe for concurrent use; the
// zero value is ready to use.
type limits struct {
	mu    sync.Mutex
	under map[fleet.GroupKey]map[fleet.InstanceID]underway
}

// underway is an instance that calls are creating.
type underway struct {
	namespace string
	calls     int
}

// enter starts the creation of an instance, unless the group is at a limit. recorded returns
// the instances of a group that have a record. The caller calls leave once when recorded shows
// the new one, or when it will not be written.
func (l *limits) enter(g fleet.Group, i fleet.Instance, recorded func(fleet.GroupKey) []fleet.Instance) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.OnDemand != nil {
		if err := l.room(g, i, recorded(g.Key)); err != nil {
			return nil, err
		}
	}
	if l.under == nil {
		l.under = map[fleet.GroupKey]map[fleet.InstanceID]underway{}
	}
	if l.under[g.Key] == nil {
		l.under[g.Key] = map[fleet.InstanceID]underway{}
	}
	l.under[g.Key][i.ID] = underway{i.Namespace, l.under[g.Key][i.ID].calls + 1}
	return func() { l.leave(g.Key, i.ID) }, nil
}

func (l *limits) leave(key fleet.GroupKey, id fleet.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.under[key][id]
	if u.calls--; u.calls > 0 {
		l.under[key][id] = u
		return
	}
	if delete(l.under[key], id); len(l.under[key]) == 0 {
		delete(l.under, key)
	}
}

// room returns an error if there is no room for one more instance. The caller holds mu.
func (l *limits) room(g fleet.Group, i fleet.Instance, recorded []fleet.Instance) error {
	all, beside, seen := 0, 0, map[fleet.InstanceID]bool{i.ID: true}
	count := func(id fleet.InstanceID, namespace string) {
		if seen[id] {
			return
		}
		seen[id] = true
		all++
		if namespace == i.Namespace {
			beside++
		}
	}
	for _, r := range recorded {
		if r.OnDemand && r.Phase != fleet.Deleted {
			count(r.ID, r.Namespace)
		}
	}
	for id, u := range l.under[g.Key] {
		count(id, u.namespace)
	}
	switch o := g.OnDemand; {
	case all >= o.Max:
		return rpc.Exhausted.Errorf("group %s has %d on-demand instances, and its on_demand.max is %d: delete some first, or raise it",
			g.Key.Name, all, o.Max)
	case i.Namespace != "" && beside >= o.PerNamespace():
		return rpc.Exhausted.Errorf("group %s has %d on-demand instances for pods of %s, and its on_demand.max_per_namespace is %d: "+
			"delete some first, or raise it", g.Key.Name, beside, i.Namespace, o.PerNamespace())
	}
	return nil
}
