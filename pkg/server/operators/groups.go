package operators

import (
	"context"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// MaxGroupPage is how many groups one page has at most.
	MaxGroupPage = 500
	// maxGroupPageBytes bounds a page, since a group's status lists its instances and gRPC
	// clients take messages of up to 4 MiB by default. A page has one group at least.
	maxGroupPageBytes = 2 << 20
)

// ListGroups lists the caller's groups by key, page by page.
func (s *Service) ListGroups(ctx context.Context, req *nstancev1.ListGroupsRequest) (*nstancev1.ListGroupsResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	limit, after, err := pageOf(req.GetPageSize(), req.GetPageToken(), MaxGroupPage, groupName)
	if err != nil {
		return nil, err
	}
	p := shard.Provider
	resp := &nstancev1.ListGroupsResponse{ProviderKind: p.Kind, Region: p.Region, Zone: p.Zone}
	size := 0
	for _, key := range shard.Groups.All() {
		if key.Tenant != tenant || key.Name <= after {
			continue
		}
		status, err := groupStatus(shard, key)
		if err != nil {
			return nil, err
		}
		status = without(status, req)
		if size += proto.Size(status); len(resp.Groups) == limit || len(resp.Groups) > 0 && size > maxGroupPageBytes {
			resp.NextPageToken = resp.GetGroups()[len(resp.Groups)-1].GetKey()
			return resp, nil
		}
		resp.Groups = append(resp.Groups, status)
	}
	return resp, nil
}

// GetGroup returns one of the caller's groups.
func (s *Service) GetGroup(ctx context.Context, req *nstancev1.GetGroupRequest) (*nstancev1.GetGroupResponse, error) {
	shard, key, err := s.openGroup(ctx, req.GetKey())
	if err != nil {
		return nil, err
	}
	if !exists(shard, key) {
		return nil, rpc.NotFound.Errorf("there is no group %s", key.Name)
	}
	status, err := groupStatus(shard, key)
	if err != nil {
		return nil, err
	}
	return &nstancev1.GetGroupResponse{Group: without(status, req)}, nil
}

// UpsertGroup creates or changes a group. It is durable when it answers.
func (s *Service) UpsertGroup(ctx context.Context, req *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error) {
	shard, key, err := s.openGroup(ctx, req.GetKey())
	if err != nil {
		return nil, err
	}
	onGroup(ctx, key)
	change, gone, err := changeOf(shard.Instances, key, req)
	if err != nil {
		return nil, err
	}
	var before string
	upsert := func() (err error) {
		before, err = shard.Groups.Upsert(ctx, key, change, req.IfEtag)
		return err
	}
	removes := audit.Detail{Name: "remove", To: strings.Join(req.GetRemove(), ", ")}
	if err := changed(ctx, shard, key, upserted(change), upsert, removes); err != nil {
		return nil, err
	}
	status, err := changedStatus(shard, key)
	if err != nil {
		return nil, err
	}
	return &nstancev1.UpsertGroupResponse{Group: status, AlreadyGone: gone, ManagedBefore: before}, nil
}

// DeleteGroup scales a dynamic group to zero, then removes it. It succeeds if the group is
// already being deleted.
func (s *Service) DeleteGroup(ctx context.Context, req *nstancev1.DeleteGroupRequest) (*nstancev1.DeleteGroupResponse, error) {
	shard, key, err := s.openGroup(ctx, req.GetKey())
	if err != nil {
		return nil, err
	}
	onGroup(ctx, key)
	if err := changed(ctx, shard, key, deleted, func() error { return shard.Groups.Delete(ctx, key, byOf(req)) }); err != nil {
		return nil, err
	}
	return &nstancev1.DeleteGroupResponse{}, nil
}

// ResetGroup drops the overrides of a static group, or releases a group that is held because
// its record is missing. The change is durable when it returns.
func (s *Service) ResetGroup(ctx context.Context, req *nstancev1.ResetGroupRequest) (*nstancev1.ResetGroupResponse, error) {
	shard, key, err := s.openGroup(ctx, req.GetKey())
	if err != nil {
		return nil, err
	}
	onGroup(ctx, key)
	if err := changed(ctx, shard, key, reset(byOf(req)), func() error { return shard.Groups.Reset(ctx, key, byOf(req)) }); err != nil {
		return nil, err
	}
	status, err := changedStatus(shard, key)
	if err != nil {
		return nil, err
	}
	return &nstancev1.ResetGroupResponse{Group: status}, nil
}

// AbortRollout takes a group back to the definition before its rollout. The change is durable when it
// returns.
func (s *Service) AbortRollout(ctx context.Context, req *nstancev1.AbortRolloutRequest) (*nstancev1.AbortRolloutResponse, error) {
	status, err := s.rollout(ctx, req.GetKey(), req.IfEtag, aborted, Rollouts.Abort)
	return &nstancev1.AbortRolloutResponse{Group: status}, err
}

// RetryRollout rolls out what a group has refused since its rollout was aborted. The change is durable when
// it returns.
func (s *Service) RetryRollout(ctx context.Context, req *nstancev1.RetryRolloutRequest) (*nstancev1.RetryRolloutResponse, error) {
	status, err := s.rollout(ctx, req.GetKey(), req.IfEtag, retried, Rollouts.Retry)
	return &nstancev1.RetryRolloutResponse{Group: status}, err
}

// rollout makes a change of a group's rollout.
func (s *Service) rollout(
	ctx context.Context, name string, etag *string, want wish, change func(Rollouts, context.Context, fleet.GroupKey, *string) error,
) (*nstancev1.GroupStatus, error) {
	shard, key, err := s.openGroup(ctx, name)
	if err != nil {
		return nil, err
	}
	onGroup(ctx, key)
	if err := changed(ctx, shard, key, want, func() error { return change(shard.Rollouts, ctx, key, etag) }); err != nil {
		return nil, err
	}
	return changedStatus(shard, key)
}

// changedStatus is the status of a group in the answer to a change: without its instances, of which
// there may be thousands.
func changedStatus(shard Shard, key fleet.GroupKey) (*nstancev1.GroupStatus, error) {
	status, err := groupStatus(shard, key)
	if err != nil {
		return nil, err
	}
	status.Instances = nil
	return status, nil
}

// openGroup is open for a call about one group.
func (s *Service) openGroup(ctx context.Context, name string) (Shard, fleet.GroupKey, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return Shard{}, fleet.GroupKey{}, err
	}
	key, err := groupKey(tenant, name)
	return shard, key, err
}

// exists reports whether a group is desired or has instances that are not deleted.
func exists(shard Shard, key fleet.GroupKey) bool {
	_, desired := shard.Groups.Group(key)
	return desired || slices.ContainsFunc(shard.Instances.Group(key), func(i fleet.Instance) bool { return i.Phase != fleet.Deleted })
}

func groupName(field, text string) (string, error) {
	if err := fleet.CheckName(text); err != nil {
		return "", rpc.InvalidField(field, err.Error())
	}
	return text, nil
}

func groupKey(tenant, name string) (fleet.GroupKey, error) {
	name, err := groupName("key", name)
	return fleet.GroupKey{Tenant: tenant, Name: name}, err
}

// changeOf returns the change that a request asks for.
func changeOf(all Instances, key fleet.GroupKey, req *nstancev1.UpsertGroupRequest) (c config.Change, gone []string, err error) {
	switch {
	case req.GetCreate() && req.IfEtag != nil:
		return c, nil, rpc.InvalidField("if_etag", "mutually exclusive with create, which only creates a group that does not exist")
	case req.GetCreate() && len(req.GetRemove()) > 0:
		return c, nil, rpc.InvalidField("remove", "mutually exclusive with create: a new group has no instances")
	}
	c = config.Change{Template: req.Template, InstanceType: req.InstanceType, SubnetPool: req.SubnetPool, Create: req.GetCreate()}
	c.By = byOf(req)
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
				return c, nil, rpc.InvalidField("max_surge", err.Error())
			}
		}
	}
	c.OnDemand, c.RolloutPaused = onDemandOf(req.GetOnDemand()), req.RolloutPaused
	if len(req.GetRemove()) > 0 && req.Size == nil {
		return c, nil, rpc.InvalidField("size", "required beside remove: want the new size")
	}
	c.Remove, gone, err = leaving(all, key, req.GetRemove())
	c.Left = left(all, c.Remove, gone)
	return c, gone, err
}

// byOf returns on whose behalf a request changes a group.
func byOf(req interface {
	GetManager() string
	GetForce() bool
}) config.By {
	return config.By{Manager: req.GetManager(), Force: req.GetForce()}
}

// left returns those of the named instances that are gone or drain.
func left(all Instances, named []fleet.InstanceID, gone []string) (ids []fleet.InstanceID) {
	for _, id := range named {
		if i, _ := all.Get(id); i.Phase == fleet.Draining {
			ids = append(ids, id)
		}
	}
	for _, id := range gone {
		ids = append(ids, fleet.InstanceID(id))
	}
	return ids
}

// leaving splits the named instances into those to remove and those already gone. A repeated
// call must not fail because the first one succeeded, but an instance of another group is an
// error: the caller relies on exactly these being removed. Another tenant's instance counts as
// never having existed.
func leaving(all Instances, key fleet.GroupKey, remove []string) (ids []fleet.InstanceID, gone []string, err error) {
	for _, s := range remove {
		id, err := fleet.ParseID(s)
		if err != nil {
			return nil, nil, rpc.InvalidField("remove", err.Error())
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

// readable refuses an instance whose record exists but can't be read: the instance may be
// alive.
func readable(all Instances, tenant string, id fleet.InstanceID) error {
	for _, m := range all.Malformed() {
		if m.Tenant == tenant && m.ID == id {
			return rpc.Precondition.Errorf("remove: can't read the record of instance %s, restore or remove object %s: %w", id, m.Key, m.Err)
		}
	}
	return nil
}
