package operators

import (
	"context"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ListGroups lists the caller's groups, sorted by key.
func (s *Service) ListGroups(ctx context.Context, _ *nstancev1.ListGroupsRequest) (*nstancev1.ListGroupsResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	p := shard.Provider
	resp := &nstancev1.ListGroupsResponse{ProviderKind: p.Kind, Region: p.Region, Zone: p.Zone}
	for _, key := range shard.Groups.All() {
		if key.Tenant != tenant {
			continue
		}
		status, err := groupStatus(shard, key)
		if err != nil {
			return nil, err
		}
		resp.Groups = append(resp.Groups, status)
	}
	return resp, nil
}

// UpsertGroup creates or changes a group. It is durable when it answers.
func (s *Service) UpsertGroup(ctx context.Context, req *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	key, err := groupKey(tenant, req.GetKey())
	if err != nil {
		return nil, err
	}
	change, gone, err := changeOf(shard.Instances, key, req)
	if err != nil {
		return nil, err
	}
	if err := shard.Groups.Upsert(ctx, key, change, req.IfEtag); err != nil {
		return nil, err
	}
	status, err := groupStatus(shard, key)
	if err != nil {
		return nil, err
	}
	return &nstancev1.UpsertGroupResponse{Group: status, AlreadyGone: gone}, nil
}

// DeleteGroup scales a dynamic group to zero, then forgets it. Deleting one that
// is on its way out already succeeds.
func (s *Service) DeleteGroup(ctx context.Context, req *nstancev1.DeleteGroupRequest) (*nstancev1.DeleteGroupResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	key, err := groupKey(tenant, req.GetKey())
	if err != nil {
		return nil, err
	}
	if err := shard.Groups.Delete(ctx, key); err != nil {
		return nil, err
	}
	return &nstancev1.DeleteGroupResponse{}, nil
}

// ResetGroup drops what overrides a static group, or ends that a group is held whose
// record was missing. It is durable when it answers.
func (s *Service) ResetGroup(ctx context.Context, req *nstancev1.ResetGroupRequest) (*nstancev1.ResetGroupResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	key, err := groupKey(tenant, req.GetKey())
	if err != nil {
		return nil, err
	}
	if err := shard.Groups.Reset(ctx, key); err != nil {
		return nil, err
	}
	status, err := groupStatus(shard, key)
	if err != nil {
		return nil, err
	}
	return &nstancev1.ResetGroupResponse{Group: status}, nil
}

func groupKey(tenant, name string) (fleet.GroupKey, error) {
	if err := fleet.CheckName(name); err != nil {
		return fleet.GroupKey{}, invalid("key", err.Error())
	}
	return fleet.GroupKey{Tenant: tenant, Name: name}, nil
}

func invalid(field, description string) error {
	return &rpc.ViolationsError{Message: "invalid request", Violations: []rpc.Violation{{Field: field, Description: description}}}
}

// changeOf is the change that a request asks for.
func changeOf(all Instances, key fleet.GroupKey, req *nstancev1.UpsertGroupRequest) (c config.Change, gone []string, err error) {
	switch {
	case req.GetCreate() && req.IfEtag != nil:
		return c, nil, invalid("if_etag", "excluded by create, which makes a group only if there is none: want one of the two")
	case req.GetCreate() && len(req.GetRemove()) > 0:
		return c, nil, invalid("remove", "excluded by create: a new group has no instances")
	}
	c = config.Change{Template: req.Template, InstanceType: req.InstanceType, SubnetPool: req.SubnetPool, Create: req.GetCreate()}
	if req.Size != nil {
		size := int(req.GetSize())
		c.Size = &size
	}
	if req.GetVars() != nil {
		c.Vars = req.GetVars().AsMap()
	}
	if req.MaxSurge != nil {
		c.MaxSurge = &fleet.Surge{}
		if text := req.GetMaxSurge(); text != "" {
			if err := c.MaxSurge.UnmarshalText([]byte(text)); err != nil {
				return c, nil, invalid("max_surge", err.Error())
			}
		}
	}
	if len(req.GetRemove()) > 0 && req.Size == nil {
		return c, nil, invalid("size", "required beside remove: want the new size")
	}
	c.Remove, gone, err = leaving(all, key, req.GetRemove())
	return c, gone, err
}

// leaving sorts the instances that are to leave from those that have left already. A
// repeated call must not fail because the first one worked, while to name an instance
// that lives elsewhere is a mistake: its caller counts on just these to go. Another
// tenant's is like one that never was.
func leaving(all Instances, key fleet.GroupKey, remove []string) (ids []fleet.InstanceID, gone []string, err error) {
	for _, s := range remove {
		id, err := fleet.ParseID(s)
		if err != nil {
			return nil, nil, invalid("remove", err.Error())
		}
		switch i, ok := all.Get(id); {
		case !ok || i.Tenant != key.Tenant:
			if err := readable(all, key.Tenant, id); err != nil {
				return nil, nil, err
			}
			gone = append(gone, s)
		case i.Phase.Ending():
			gone = append(gone, s)
		case i.GroupKey() != key || i.OnDemand:
			return nil, nil, rpc.NotFound.Errorf("remove: group %s has no managed instance %s", key.Name, id)
		default:
			ids = append(ids, id)
		}
	}
	return ids, gone, nil
}

// readable refuses an instance whose record is there and can't be read: it may live.
func readable(all Instances, tenant string, id fleet.InstanceID) error {
	for _, m := range all.Malformed() {
		if m.Tenant == tenant && m.ID == id {
			return rpc.Precondition.Errorf("remove: the record of instance %s, %s, can't be read, restore or remove it: %w", id, m.Key, m.Err)
		}
	}
	return nil
}
