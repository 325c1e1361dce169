package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Group is one group of one shard, as people and scripts see it.
type Group struct {
	Shard        string         `json:"shard"`
	Key          string         `json:"key"`
	Tenant       string         `json:"tenant"`
	Size         int32          `json:"size"`
	ActualSize   int32          `json:"actual_size"`
	PendingSize  int32          `json:"pending_size"`
	DrainingSize int32          `json:"draining_size"`
	UpToDateSize int32          `json:"up_to_date_size"`
	StaticSize   int32          `json:"static_size"`
	Template     string         `json:"template"`
	InstanceType string         `json:"instance_type"`
	SubnetPool   string         `json:"subnet_pool"`
	MaxSurge     string         `json:"max_surge"`
	Vars         map[string]any `json:"vars,omitempty"`
	Capacity     *Capacity      `json:"capacity,omitempty"`
	IsStatic     bool           `json:"is_static"`
	ETag         string         `json:"etag"`
	ProviderIDs  []string       `json:"provider_ids"`
	// Instances are those that have a machine, by id; provider_ids has their machines.
	Instances   []GroupInstance `json:"instances"`
	Conditions  []Condition     `json:"conditions"`
	AlreadyGone []string        `json:"already_gone,omitempty"` // of those that a change was to remove
}

// GroupInstance says which machine is which instance of a group.
type GroupInstance struct {
	ID             string `json:"id"`
	ProviderID     string `json:"provider_id"`
	NodeProviderID string `json:"node_provider_id"`
	Zone           string `json:"zone,omitempty"`
}

// Capacity is what a machine of the group's instance type has.
type Capacity struct {
	CPUMillis   int64  `json:"cpu_millis"`
	MemoryBytes int64  `json:"memory_bytes"`
	Arch        string `json:"arch"`
}

// Condition is one thing that is true, or not, of a group.
type Condition struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

func group(shard string, g *nstancev1.GroupStatus) Group {
	out := Group{
		Shard: shard, Key: g.GetKey(), Tenant: g.GetTenant(),
		Size: g.GetSize(), ActualSize: g.GetActualSize(), PendingSize: g.GetPendingSize(), DrainingSize: g.GetDrainingSize(),
		UpToDateSize: g.GetUpToDateSize(), StaticSize: g.GetStaticSize(),
		Template: g.GetTemplate(), InstanceType: g.GetInstanceType(), SubnetPool: g.GetSubnetPool(), MaxSurge: g.GetMaxSurge(),
		Vars: g.GetVars().AsMap(), IsStatic: g.GetIsStatic(), ETag: g.GetEtag(),
		ProviderIDs: append([]string{}, g.GetProviderIds()...), Instances: []GroupInstance{}, Conditions: []Condition{},
	}
	for _, i := range g.GetInstances() {
		out.Instances = append(out.Instances, GroupInstance{
			ID: i.GetId(), ProviderID: i.GetProviderId(), NodeProviderID: i.GetNodeProviderId(), Zone: i.GetZone(),
		})
	}
	if c := g.GetCapacity(); c != nil {
		out.Capacity = &Capacity{CPUMillis: c.GetCpuMillis(), MemoryBytes: c.GetMemoryBytes(), Arch: c.GetArch()}
	}
	for _, c := range g.GetConditions() {
		out.Conditions = append(out.Conditions, Condition{Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(),
			Message: c.GetMessage()})
	}
	return out
}

// ListGroups returns the groups of all shards given, ordered by shard and key.
// What some shards answered is returned beside the error of the others.
func (c *Client) ListGroups(ctx context.Context, shards []client.Shard) ([]Group, error) {
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Group, error) {
		resp, err := s.ListGroups(ctx, &nstancev1.ListGroupsRequest{})
		if err != nil {
			return nil, err
		}
		groups := make([]Group, 0, len(resp.GetGroups()))
		for _, g := range resp.GetGroups() {
			groups = append(groups, group(shard, g))
		}
		return groups, nil
	})
}

// GroupStatus returns the group of that key in every shard given that has it,
// beside the error of the shards that did not answer.
func (c *Client) GroupStatus(ctx context.Context, shards []client.Shard, key string) ([]Group, error) {
	all, err := c.ListGroups(ctx, shards)
	found := []Group{}
	var have []string
	for _, g := range all {
		if g.Key == key {
			found = append(found, g)
		}
		have = append(have, g.Key)
	}
	if len(found) == 0 && err == nil {
		slices.Sort(have)
		return nil, fmt.Errorf("group %q: %w (have: %s)", key, ErrNoGroup, strings.Join(slices.Compact(have), ", "))
	}
	return found, err
}

// Change is what UpsertGroup is to change; nil fields stay as they are.
type Change struct {
	Key          string
	Size         *int32
	Template     *string
	InstanceType *string
	SubnetPool   *string
	MaxSurge     *string // a count or a share of the size; empty: what the static config says
	Vars         map[string]any
	Remove       []string // instance ids that leave for this size
	IfETag       *string  // that the group must have; empty: there must be none
	Create       bool     // make a new group: one that exists is left as it is, which is an error
}

// UpsertGroup creates or changes a group in every shard given. A change without
// a template creates nothing: then a shard without the group is an error. What
// some shards answered is returned beside the error of the others.
func (c *Client) UpsertGroup(ctx context.Context, shards []client.Shard, change Change) ([]Group, error) {
	req := &nstancev1.UpsertGroupRequest{
		Key: change.Key, Size: change.Size, Template: change.Template,
		InstanceType: change.InstanceType, SubnetPool: change.SubnetPool, MaxSurge: change.MaxSurge,
		Remove: change.Remove, IfEtag: change.IfETag, Create: change.Create,
	}
	if change.Vars != nil {
		vars, err := structpb.NewStruct(change.Vars)
		if err != nil {
			return nil, fmt.Errorf("vars: %w", err)
		}
		req.Vars = vars
	}
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Group, error) {
		resp, err := s.UpsertGroup(ctx, req)
		if err != nil {
			return nil, err
		}
		g := group(shard, resp.GetGroup())
		g.AlreadyGone = resp.GetAlreadyGone()
		return []Group{g}, nil
	})
}

// ResetGroup drops what overrides a static group, or ends that a group is held whose
// record was missing, in every shard given. What some shards answered is returned beside
// the error of the others.
func (c *Client) ResetGroup(ctx context.Context, shards []client.Shard, key string) ([]Group, error) {
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Group, error) {
		resp, err := s.ResetGroup(ctx, &nstancev1.ResetGroupRequest{Key: key})
		if err != nil {
			return nil, err
		}
		return []Group{group(shard, resp.GetGroup())}, nil
	})
}

// DeleteGroup deletes a dynamic group in every shard given, and returns the
// shards that do.
func (c *Client) DeleteGroup(ctx context.Context, shards []client.Shard, key string) ([]string, error) {
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]string, error) {
		if _, err := s.DeleteGroup(ctx, &nstancev1.DeleteGroupRequest{Key: key}); err != nil {
			return nil, err
		}
		return []string{shard}, nil
	})
}
