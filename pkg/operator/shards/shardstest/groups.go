package shardstest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// The provider's names; the zone is named after the shard.
const (
	providerKind = "process"
	region       = "test"
)

// definition is a group's desired state.
type definition struct {
	size                               int32
	template, instanceType, subnetPool string
	vars                               *structpb.Struct
	maxSurge                           string
	onDemand                           *nstancev1.OnDemand
	rolloutPaused                      bool
	manager                            string
}

// infra identifies what instances are built from.
func (d definition) infra() string { return d.template + "|" + d.instanceType + "|" + d.subnetPool }

func (d definition) equal(o definition) bool {
	return d.size == o.size && d.infra() == o.infra() && d.maxSurge == o.maxSurge && proto.Equal(d.vars, o.vars) &&
		proto.Equal(d.onDemand, o.onDemand) && d.rolloutPaused == o.rolloutPaused && d.manager == o.manager
}

// define creates a group, or adopts one into the static config.
func (s *state) define(name string, d definition, staticSize *int32) {
	g := &group{name: name, definition: d, conditions: map[string]*nstancev1.Condition{}}
	if staticSize != nil {
		g.static, g.staticSize = true, *staticSize
	}
	s.groups[name] = g
	delete(s.left, name)
	s.redefine(g)
}

// redefine gives a group a new, unique etag.
func (s *state) redefine(g *group) {
	s.touchGroup(g)
	g.revision = s.version
}

func (g *group) etag() string { return fmt.Sprintf("%016x", g.revision) }

// groupPage is how many groups a page has: few, so that callers have to read more than one.
const groupPage = 2

// ListGroups implements OperatorServiceServer.
func (s *service) ListGroups(ctx context.Context, req *nstancev1.ListGroupsRequest) (*nstancev1.ListGroupsResponse, error) {
	return serve(ctx, s, "ListGroups", req, func(time.Time) (*nstancev1.ListGroupsResponse, error) {
		resp := &nstancev1.ListGroupsResponse{ProviderKind: providerKind, Region: region, Zone: s.id}
		for _, name := range slices.Sorted(maps.Keys(s.groups)) {
			switch {
			case name <= req.GetPageToken():
				continue
			case len(resp.Groups) == groupPage:
				resp.NextPageToken = resp.GetGroups()[groupPage-1].GetKey()
				return resp, nil
			}
			resp.Groups = append(resp.Groups, s.groupFor(s.groups[name], req))
		}
		return resp, nil
	})
}

// groupFor returns a group, without what the request omits.
func (s *state) groupFor(g *group, req interface {
	GetOmitInstances() bool
	GetOmitVars() bool
}) *nstancev1.GroupStatus {
	to := s.groupStatus(g)
	if req.GetOmitInstances() {
		to.Instances = nil
	}
	if req.GetOmitVars() {
		to.Vars = nil
	}
	return to
}

// changedGroup returns a group as the answer to a change does.
func (s *state) changedGroup(g *group) *nstancev1.GroupStatus {
	to := s.groupStatus(g)
	to.Instances = nil
	return to
}

// GetGroup implements OperatorServiceServer.
func (s *service) GetGroup(ctx context.Context, req *nstancev1.GetGroupRequest) (*nstancev1.GetGroupResponse, error) {
	return serve(ctx, s, "GetGroup", req, func(time.Time) (*nstancev1.GetGroupResponse, error) {
		g := s.groups[req.GetKey()]
		if g == nil {
			return nil, rpc.NotFound.Errorf("there is no group %s", req.GetKey())
		}
		return &nstancev1.GetGroupResponse{Group: s.groupStatus(g)}, nil
	})
}

// UpsertGroup implements OperatorServiceServer.
func (s *service) UpsertGroup(ctx context.Context, req *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error) {
	return serve(ctx, s, "UpsertGroup", req, func(time.Time) (*nstancev1.UpsertGroupResponse, error) {
		s.race(req.GetKey())
		if s.unmanaged {
			req = proto.CloneOf(req)
			req.Manager, req.Force = "", false
		}
		return s.upsert(req)
	})
}

func (s *state) upsert(req *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error) {
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
	} else if d := changed(g.definition, sized(req, int(g.size), ids, gone)); !d.equal(g.definition) || len(ids) > 0 {
		g.definition = d
		s.redefine(g)
	}
	g.leaving = append(g.leaving, ids...)
	resp := &nstancev1.UpsertGroupResponse{Group: s.changedGroup(g), AlreadyGone: gone}
	s.converge()
	return resp, nil
}

// sized returns a request with the size that it leads to: if all that a smaller size takes away are
// named, it shrinks by those that are not gone.
func sized(req *nstancev1.UpsertGroupRequest, size int, ids, gone []string) *nstancev1.UpsertGroupRequest {
	if req.Size == nil || size-int(req.GetSize()) > len(ids)+len(gone) {
		return req
	}
	out := proto.CloneOf(req)
	out.Size = new(max(req.GetSize(), int32(size-len(ids)))) //nolint:gosec // a test's size
	return out
}

// changed applies a request to a definition: only set fields change.
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
	if req.RolloutPaused != nil {
		d.rolloutPaused = req.GetRolloutPaused()
	}
	if !onlyPauses(req) {
		d.manager = req.GetManager()
	}
	if req.Size != nil {
		d.size = req.GetSize()
	}
	if req.GetVars() != nil {
		d.vars = req.GetVars()
	}
	if o := req.GetOnDemand(); o != nil {
		if d.onDemand = o; policyOf(o).IsZero() {
			d.onDemand = nil
		}
	}
	return d
}

// allowed returns why a group can't be changed as requested.
func (s *state) allowed(req *nstancev1.UpsertGroupRequest) error {
	if err := fleet.CheckName(req.GetKey()); err != nil {
		return rpc.InvalidField("key", err.Error())
	}
	if req.GetSize() < 0 {
		return rpc.InvalidField("size", fmt.Sprintf("%d: want 0 to 10000", req.GetSize()))
	}
	if len(req.GetRemove()) > 0 && req.Size == nil {
		return rpc.InvalidField("size", "required beside remove: want the new size")
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
	if !onlyPauses(req) {
		if err := g.permits(req); err != nil {
			return err
		}
	}
	return g.allows(req)
}

// onlyPauses reports whether a request pauses or resumes a rollout, and changes nothing else.
func onlyPauses(req *nstancev1.UpsertGroupRequest) bool {
	pause := &nstancev1.UpsertGroupRequest{Key: req.GetKey(), RolloutPaused: req.RolloutPaused}
	pause.Manager, pause.Force = req.GetManager(), req.GetForce()
	return req.RolloutPaused != nil && proto.Equal(req, pause)
}

// permits refuses the change of a group that something else manages.
func (g *group) permits(by interface {
	GetManager() string
	GetForce() bool
}) error {
	if g.removed || g.manager == "" || g.manager == by.GetManager() || by.GetForce() {
		return nil
	}
	return &rpc.PreconditionError{Message: "nothing was changed: change it where it is managed, or by force", Failures: []rpc.Failure{
		{Type: rpc.GroupManaged, Subject: "default/" + g.name, Description: "managed by " + g.manager},
	}}
}

// allows returns why an existing group can't be changed as requested.
func (g *group) allows(req *nstancev1.UpsertGroupRequest) error {
	switch {
	case g.removed && req.Template == nil:
		return rpc.Precondition.Errorf("change group %s: the group is being deleted: set a template to recreate it", g.name)
	case g.static && req.Template != nil && req.GetTemplate() != g.template:
		return restricted(g, "template")
	case g.static && req.GetSubnetPool() != "" && req.GetSubnetPool() != g.subnetPool:
		return restricted(g, "subnet_pool")
	case g.static && req.GetOnDemand() != nil && !policyOf(req.GetOnDemand()).Equal(policyOf(g.onDemand)):
		return restricted(g, "on_demand")
	}
	return nil
}

func restricted(g *group, field string) error {
	const only = "set by static config: only size, instance_type, vars, max_surge and rollout_paused of this group can be changed here"
	return rpc.Precondition.Errorf("change group %s: %s: %s", g.name, field, only)
}

// remove splits the instances named in a request into present and removed ones.
func (s *state) remove(name string, req *nstancev1.UpsertGroupRequest) (ids, gone []string, err error) {
	for _, id := range req.GetRemove() {
		if _, err := fleet.ParseID(id); err != nil {
			return nil, nil, rpc.InvalidField("remove", err.Error())
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
		return &nstancev1.DeleteGroupResponse{}, s.deleteGroup(req)
	})
}

func (s *state) deleteGroup(req *nstancev1.DeleteGroupRequest) error {
	name := req.GetKey()
	g := s.groups[name]
	switch {
	case g == nil:
		return rpc.NotFound.Errorf("delete group %s: no such group", name)
	case g.static:
		return rpc.Precondition.Errorf("group %s is set by static config: remove it there, or scale it to 0", name)
	case g.permits(req) != nil:
		return g.permits(req)
	case !g.removed:
		g.removed, g.size, g.leaving = true, 0, nil
		s.redefine(g)
	}
	s.converge()
	return nil
}

// groupStatus returns the full status of a group.
func (s *state) groupStatus(g *group) *nstancev1.GroupStatus {
	st := &nstancev1.GroupStatus{
		Key: g.name, Tenant: tenant, Template: g.template, Size: g.size, InstanceType: g.instanceType, SubnetPool: g.subnetPool,
		Vars: merged(s.vars[g.template], g.vars), IsStatic: g.static, StaticSize: g.staticSize, Etag: g.etag(), MaxSurge: cmp.Or(g.maxSurge, "1"),
		Capacity: s.capacity[withDefault(g.instanceType)], OnDemand: g.onDemand,
		DrainTimeout: durationpb.New(s.timing.Drain), RolloutPaused: g.rolloutPaused, Manager: g.manager,
	}
	for _, i := range s.byAge() {
		if i.Group == g.name && !i.OnDemand && i.Phase != deleted {
			count(st, i, g)
		}
	}
	ready := &nstancev1.Condition{Type: "Ready", Status: "True"}
	if st.ActualSize != st.Size || st.PendingSize > 0 {
		ready.Status, ready.Reason = "False", "NotAtSize"
	}
	if c := g.conditions["Ready"]; c != nil {
		ready.Status, ready.Reason, ready.Message = "False", c.GetReason(), c.GetMessage()
	}
	st.Conditions = append(st.Conditions, ready)
	if g.rolloutPaused && !g.removed {
		st.Conditions = append(st.Conditions, &nstancev1.Condition{
			Type: "RolloutPaused", Status: "True", Reason: "Requested", Message: "working instances that are outdated are not replaced",
		})
	}
	if g.removed {
		removed := &nstancev1.Condition{Type: "Removed", Status: "True", Reason: "GroupDeleted", Message: "the group is being emptied"}
		st.Conditions = append(st.Conditions, removed)
	}
	for _, name := range slices.Sorted(maps.Keys(g.conditions)) {
		if name == "Ready" {
			continue
		}
		st.Conditions = append(st.Conditions, g.conditions[name])
	}
	return proto.CloneOf(st) // its parts change later
}

// merged returns a template's vars with the group's own over them; nil if there are none.
func merged(template, own *structpb.Struct) *structpb.Struct {
	if template == nil {
		return own
	}
	all := maps.Clone(template.GetFields())
	maps.Copy(all, own.GetFields())
	return &structpb.Struct{Fields: all}
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
		st.Instances = append(st.Instances, &nstancev1.GroupInstance{
			Id: i.Id, ProviderId: i.ProviderId, NodeProviderId: i.NodeProviderId, Zone: i.Zone,
		})
	}
}
