package admin

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Instance is one instance of one shard, as people and scripts see it.
type Instance struct {
	Shard           string     `json:"shard"`
	ID              string     `json:"id"`
	Tenant          string     `json:"tenant"`
	Group           string     `json:"group"`
	OnDemand        bool       `json:"on_demand"`
	IdempotencyKey  string     `json:"idempotency_key,omitempty"`
	Phase           string     `json:"phase"`
	Reason          string     `json:"reason,omitempty"`
	Connected       bool       `json:"connected"`
	LastReportAt    *time.Time `json:"last_report_at,omitempty"`
	UnhealthyReason string     `json:"unhealthy_reason,omitempty"`
	ProviderID      string     `json:"provider_id,omitempty"`
	NodeProviderID  string     `json:"node_provider_id,omitempty"`
	ProviderState   string     `json:"provider_state,omitempty"`
	InstanceType    string     `json:"instance_type,omitempty"`
	Subnet          string     `json:"subnet,omitempty"`
	Hostname        string     `json:"hostname,omitempty"`
	IPs             []string   `json:"ips,omitempty"`
	CreatedAt       *time.Time `json:"created_at,omitempty"`
	RegisteredAt    *time.Time `json:"registered_at,omitempty"`
	DeletedAt       *time.Time `json:"deleted_at,omitempty"`
	Drain           *Drain     `json:"drain,omitempty"`
	ConfigHash      string     `json:"config_hash,omitempty"`
	LastError       string     `json:"last_error,omitempty"` // why the last step for it failed
	LastErrorAt     *time.Time `json:"last_error_at,omitempty"`
}

// Drain is how far an instance's drain is.
type Drain struct {
	Reason   string     `json:"reason"`
	DeleteAt *time.Time `json:"delete_at,omitempty"`
	AckedAt  *time.Time `json:"acked_at,omitempty"`
}

func instance(shard string, i *nstancev1.InstanceStatus) Instance {
	out := Instance{
		Shard: shard, ID: i.GetId(), Tenant: i.GetTenant(), Group: i.GetGroup(), OnDemand: i.GetOnDemand(),
		Phase:  strings.ToLower(strings.TrimPrefix(i.GetPhase().String(), "INSTANCE_PHASE_")),
		Reason: i.GetReason(), Connected: i.GetConnected(), LastReportAt: timeOf(i.GetLastReportAt()),
		UnhealthyReason: i.GetUnhealthyReason(), ProviderID: i.GetProviderId(), ProviderState: i.GetProviderState(),
		InstanceType: i.GetInstanceType(), Subnet: i.GetSubnet(), Hostname: i.GetHostname(), IPs: i.GetIps(),
		CreatedAt: timeOf(i.GetCreatedAt()), RegisteredAt: timeOf(i.GetRegisteredAt()), DeletedAt: timeOf(i.GetDeletedAt()),
		ConfigHash: i.GetConfigHash(), LastError: i.GetLastError(), LastErrorAt: timeOf(i.GetLastErrorAt()),
		IdempotencyKey: i.GetIdempotencyKey(), NodeProviderID: i.GetNodeProviderId(),
	}
	if d := i.GetDrain(); d != nil {
		out.Drain = &Drain{Reason: d.GetReason(), DeleteAt: timeOf(d.GetDeleteAt()), AckedAt: timeOf(d.GetAckedAt())}
	}
	return out
}

func timeOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}

// ListInstances returns the instances of one group, or of all when group is
// empty, ordered by shard and age; tombstones only when asked for.
func (c *Client) ListInstances(ctx context.Context, shards []client.Shard, group string, deleted bool) ([]Instance, error) {
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Instance, error) {
		found, err := client.Instances(ctx, s, group, deleted)
		out := make([]Instance, 0, len(found))
		for _, i := range found {
			out = append(out, instance(shard, i))
		}
		return out, err
	})
}

// InstanceStatus finds one instance in whichever of the shards has it, without
// waiting for the others once it is found.
func (c *Client) InstanceStatus(ctx context.Context, shards []client.Shard, id string) (Instance, error) {
	ctx, found := context.WithCancel(ctx)
	defer found()
	all, err := client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Instance, error) {
		resp, err := s.GetInstanceStatus(ctx, &nstancev1.GetInstanceStatusRequest{Id: id})
		if err != nil {
			return nil, err
		}
		found()
		return []Instance{instance(shard, resp.GetInstance())}, nil
	})
	if len(all) > 0 {
		return all[0], nil
	}
	return Instance{}, err
}
