package operators

import (
	"context"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ListInstances lists the caller's instances by ID, page by page.
func (s *Service) ListInstances(ctx context.Context, req *nstancev1.ListInstancesRequest) (*nstancev1.ListInstancesResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	limit, after, err := pageOf(req.GetPageSize(), req.GetPageToken(), MaxInstancePage, instanceID)
	if err != nil {
		return nil, err
	}
	of := fleet.GroupKey{Tenant: tenant}
	if req.GetGroup() != "" {
		if of, err = groupKey(tenant, req.GetGroup()); err != nil {
			return nil, err
		}
	}
	page, more := shard.Instances.Page(of, after, limit, func(p fleet.Phase) bool {
		return p != fleet.Deleted || req.GetIncludeDeleted()
	})
	resp := &nstancev1.ListInstancesResponse{}
	for _, i := range page {
		resp.Instances = append(resp.Instances, statusOf(shard, i))
	}
	if more {
		resp.NextPageToken = string(page[len(page)-1].ID)
	}
	return resp, nil
}

// GetInstanceStatus returns the status of one instance.
func (s *Service) GetInstanceStatus(
	ctx context.Context, req *nstancev1.GetInstanceStatusRequest,
) (*nstancev1.GetInstanceStatusResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	id, err := instanceID("id", req.GetId())
	if err != nil {
		return nil, err
	}
	i, err := shard.OnDemand.Find(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	return &nstancev1.GetInstanceStatusResponse{Instance: statusOf(shard, i)}, nil
}

func instanceStatus(i fleet.Instance, h Health) *nstancev1.InstanceStatus {
	st := &nstancev1.InstanceStatus{
		Id: string(i.ID), Tenant: i.Tenant, Group: i.Group, OnDemand: i.OnDemand,
		Phase: phase(i.Phase), Reason: i.Reason,
		ProviderId: i.Provider.ID, ProviderState: h.ProviderState,
		InstanceType: instanceType(i), Subnet: i.Provider.Subnet,
		Hostname: i.Hostname, Ips: i.IPs,
		CreatedAt: timestamppb.New(i.CreatedAt), RegisteredAt: timestamp(i.RegisteredAt), DeletedAt: timestamp(i.DeletedAt),
		Connected: h.Connected, UnhealthyReason: h.Unhealthy, ConfigHash: h.ConfigHash, Namespace: i.Namespace,
	}
	if !h.LastReportAt.IsZero() {
		st.LastReportAt = timestamppb.New(h.LastReportAt)
	}
	if !h.CertificateExpires.IsZero() {
		st.CertificateExpiresAt = timestamppb.New(h.CertificateExpires)
	}
	if h.LastError != "" {
		st.LastError, st.LastErrorAt = h.LastError, timestamppb.New(h.LastErrorAt)
	}
	if d := i.Drain; d != nil {
		st.Drain = &nstancev1.DrainStatus{Reason: d.Reason, DeleteAt: timestamppb.New(d.DeleteAt), AckedAt: timestamp(d.AckedAt)}
	}
	return st
}

// instanceType returns the instance type of the machine, or the requested one.
func instanceType(i fleet.Instance) string {
	if i.Provider.InstanceType == "" && i.Overrides != nil {
		return i.Overrides.InstanceType
	}
	return i.Provider.InstanceType
}

// phase converts a phase, to UNSPECIFIED if unknown.
func phase(p fleet.Phase) nstancev1.InstancePhase {
	return nstancev1.InstancePhase(nstancev1.InstancePhase_value["INSTANCE_PHASE_"+strings.ToUpper(string(p))])
}

func timestamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}
