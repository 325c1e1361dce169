package shardstest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Where the shards make their machines; the zone is named like the shard.
const (
	providerKind = "process"
	region       = "test"
)

// definition is what a group is desired to be.
type definition struct {
	size                               int32
	template, instanceType, subnetPool string
	vars                               *structpb.Struct
	maxSurge                           string
}

// infra names what instances are built from.
func (d definition) infra() string { return d.template + "|" + d.instanceType + "|" + d.subnetPool }

func (d definition) equal(o definition) bool {
	return d.size == o.size && d.infra() == o.infra() && d.maxSurge == o.maxSurge && proto.Equal(d.vars, o.vars)
}

// define makes a group, or takes one into the static config.
func (s *state) define(name string, d definition, staticSize *int32) {
	g := &group{name: name, definition: d, conditions: map[string]*nstancev1.Condition{}}
	if staticSize != nil {
		g.static, g.staticSize = true, *staticSize
	}
	s.groups[name] = g
	delete(s.left, name)
	s.redefine(g)
}

// redefine gives a group another etag, which no group ever had.
func (s *state) redefine(g *group) {
	s.touchGroup(g)
	g.revision = s.version
}

func (g *group) etag() string { return fmt.Sprintf("%016x", g.revision) }

// ListGroups implements OperatorServiceServer.
func (s *service) ListGroups(ctx context.Context, req *nstancev1.ListGroupsRequest) (*nstancev1.ListGroupsResponse, error) {
	return serve(ctx, s, "ListGroups", req, func(time.Time) (*nstancev1.ListGroupsResponse, error) {
		resp := &nstancev1.ListGroupsResponse{ProviderKind: providerKind, Region: region, Zone: s.id}
		for _, name := range slices.Sorted(maps.Keys(s.groups)) {
			resp.Groups = append(resp.Groups, s.groupStatus(s.groups[name]))
		}
		return resp, nil
	})
}

// UpsertGroup implements OperatorServiceServer.
func (s *service) UpsertGroup(ctx context.Context, req *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error) {
	return serve(ctx, s, "UpsertGroup", req, func(time.Time) (*nstancev1.UpsertGroupResponse, error) {
		name := req.GetKey()
		if err := s.allowed(req); err != nil {
			return nil, err
		}
		ids, gone, err := s.remove(name, req)
		if err != nil {
			return nil, err
		}
		g := s.groups[name]
		if g == nil || g.removed {
			s.define(name, changed(definition{}, req), nil)
			g = s.groups[name]
		} else if d := changed(g.definition, req); !d.equal(g.definition) || len(ids) > 0 {
			g.definition = d
			s.redefine(g)
		}
		g.leaving = append(g.leaving, ids...)
		resp := &nstancev1.UpsertGroupResponse{Group: s.groupStatus(g), AlreadyGone: gone}
		s.settle()
		return resp, nil
	})
}

// changed is what a definition becomes by a request: only the fields that are
// set change.
func changed(d definition, req *nstancev1.UpsertGroupRequest) definition {
	set := func(field *string, given *string) {
		if given != nil {
			*field = *given
		}
	}
	set(&d.template, req.Template)
	set(&d.instanceType, req.InstanceType)
	set(&d.subnetPool, req.SubnetPool)
	set(&d.maxSurge, req.MaxSurge)
	if req.Size != nil {
		d.size = req.GetSize()
	}
	if req.GetVars() != nil {
		d.vars = req.GetVars()
	}
	return d
}

// allowed reports why a group can't be changed as a request wants it.
func (s *state) allowed(req *nstancev1.UpsertGroupRequest) error {
	if err := fleet.CheckName(req.GetKey()); err != nil {
		return invalid("key", err.Error())
	}
	if req.GetSize() < 0 {
		return invalid("size", fmt.Sprintf("%d: want 0 to 10000", req.GetSize()))
	}
	if len(req.GetRemove()) > 0 && req.Size == nil {
		return invalid("size", "required beside remove: want the new size")
	}
	g := s.groups[req.GetKey()]
	etag := ""
	if g != nil {
		etag = g.etag()
	}
	if req.IfEtag != nil && req.GetIfEtag() != etag {
		return rpc.Conflict.Errorf("group %s has changed: its etag is %q, not %q", req.GetKey(), etag, req.GetIfEtag())
	}
	if g == nil {
		if req.Template == nil {
			return rpc.NotFound.Errorf("change group %s: no such group", req.GetKey())
		}
		return nil
	}
	return g.allows(req)
}

// allows reports why a group that is there can't be changed as a request wants it.
func (g *group) allows(req *nstancev1.UpsertGroupRequest) error {
	switch {
	case g.removed && req.Template == nil:
		return rpc.Precondition.Errorf("change group %s: the group is being deleted: give a template to create it anew", g.name)
	case g.static && req.Template != nil && req.GetTemplate() != g.template:
		return restricted(g, "template")
	case g.static && req.GetSubnetPool() != "" && req.GetSubnetPool() != g.subnetPool:
		return restricted(g, "subnet_pool")
	}
	return nil
}

func restricted(g *group, field string) error {
	const only = "set by static config: only size, instance_type and vars of this group can be changed here"
	return rpc.Precondition.Errorf("change group %s: %s: %s", g.name, field, only)
}

func invalid(field, description string) error {
	return &rpc.ViolationsError{Message: "invalid request", Violations: []rpc.Violation{{Field: field, Description: description}}}
}

// remove sorts the instances that a request names to leave from those that have left.
func (s *state) remove(name string, req *nstancev1.UpsertGroupRequest) (ids, gone []string, err error) {
	for _, id := range req.GetRemove() {
		if _, err := fleet.ParseID(id); err != nil {
			return nil, nil, invalid("remove", err.Error())
		}
		i := s.instances[id]
		switch {
		case i == nil || i.Phase == deleting || i.Phase == deleted:
			gone = append(gone, id)
		case i.Group != name || i.OnDemand:
			return nil, nil, rpc.NotFound.Errorf("remove: group %s has no managed instance %s", name, id)
		case s.groups[name] == nil || !slices.Contains(s.groups[name].leaving, id):
			ids = append(ids, id)
		}
	}
	return ids, gone, nil
}

// DeleteGroup implements OperatorServiceServer.
func (s *service) DeleteGroup(ctx context.Context, req *nstancev1.DeleteGroupRequest) (*nstancev1.DeleteGroupResponse, error) {
	return serve(ctx, s, "DeleteGroup", req, func(time.Time) (*nstancev1.DeleteGroupResponse, error) {
		g := s.groups[req.GetKey()]
		switch {
		case g == nil:
			return nil, rpc.NotFound.Errorf("delete group %s: no such group", req.GetKey())
		case g.static:
			return nil, rpc.Precondition.Errorf("group %s is set by static config: remove it there, or scale it to 0", g.name)
		case !g.removed:
			g.removed, g.size, g.leaving = true, 0, nil
			s.redefine(g)
		}
		s.settle()
		return &nstancev1.DeleteGroupResponse{}, nil
	})
}

// groupStatus tells everything about a group.
func (s *state) groupStatus(g *group) *nstancev1.GroupStatus {
	st := &nstancev1.GroupStatus{
		Key: g.name, Tenant: tenant, Template: g.template, Size: g.size, InstanceType: g.instanceType, SubnetPool: g.subnetPool,
		Vars: g.vars, IsStatic: g.static, StaticSize: g.staticSize, Etag: g.etag(), MaxSurge: cmp.Or(g.maxSurge, "1"),
		Capacity: s.capacity[withDefault(g.instanceType)],
	}
	for _, i := range s.byAge() {
		if i.Group == g.name && !i.OnDemand && i.Phase != deleted {
			count(st, i, g)
		}
	}
	slices.Sort(st.ProviderIds)
	ready := &nstancev1.Condition{Type: "Ready", Status: st.ActualSize == st.Size && st.PendingSize == 0}
	if !ready.Status {
		ready.Reason = "NotAtSize"
	}
	st.Conditions = append(st.Conditions, ready)
	if g.removed {
		removed := &nstancev1.Condition{Type: "Removed", Status: true, Reason: "GroupDeleted", Message: "the group is being emptied"}
		st.Conditions = append(st.Conditions, removed)
	}
	for _, name := range slices.Sorted(maps.Keys(g.conditions)) {
		st.Conditions = append(st.Conditions, g.conditions[name])
	}
	return proto.CloneOf(st) // what it was made of goes on to change
}

func count(st *nstancev1.GroupStatus, i *instance, g *group) {
	switch {
	case i.Phase == draining:
		st.DrainingSize++
	case i.Phase == running && !slices.Contains(g.leaving, i.Id):
		st.ActualSize++
		if i.built == g.infra() {
			st.UpToDateSize++
		}
	default:
		st.PendingSize++
	}
	if i.ProviderId != "" && i.Phase != deleting {
		st.ProviderIds = append(st.ProviderIds, i.ProviderId)
		st.Instances = append(st.Instances, &nstancev1.GroupInstance{
			Id: i.Id, ProviderId: i.ProviderId, NodeProviderId: i.NodeProviderId, Zone: i.Zone,
		})
	}
}
