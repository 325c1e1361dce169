// Package operators serves OperatorService: what the Kubernetes operator, the
// admin CLI and scripts ask of a shard's leader.
//
// Everything is scoped by the tenant of the caller's certificate. Another
// tenant's group or instance is not found, exactly like one that does not exist.
package operators

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Health is what is known of an instance beyond its record.
type Health struct {
	Connected     bool
	LastReportAt  time.Time // zero: none since takeover
	Unhealthy     string    // why; empty when it is not
	ProviderState string
	ConfigHash    string // that it last reported; empty: none since takeover
	LastError     string // why the last step for it failed; empty: it did not, as far as is known
	LastErrorAt   time.Time
}

// Shard is what the leader's term offers to operators, by duty. What it returns is
// the caller's own copy; the errors of what it does are kinds of package rpc.
type Shard struct {
	Groups    Groups
	Instances Instances
	Health    func(id fleet.InstanceID) Health
	Provider  config.Provider // that the shard makes its machines with
	// Capacity is what a machine of an instance type has; not ok while that is not
	// known. It must not block.
	Capacity func(instanceType string) (c Capacity, ok bool)
	Problems Problems
	// CreatesFailing tells how the creates of a group fail, if they do; nil: nobody
	// knows.
	CreatesFailing func(key fleet.GroupKey) (f fleet.CreatesFailing, failing bool)

	OnDemand OnDemand
	Registry Registry
	Static   Static
	Watches  *Watches
}

// Groups are the desired groups.
type Groups interface {
	// All lists the groups that are desired or still have instances, sorted.
	All() []fleet.GroupKey
	// Group is not ok when nothing defines the group, of which nothing changes then.
	Group(key fleet.GroupKey) (g fleet.Group, ok bool)
	// Upsert and Delete are durable when they return nil. With ifETag, Upsert changes
	// only the group whose ETag is this one, and with an empty one makes a group that is
	// not there; otherwise it fails with rpc.Conflict.
	Upsert(ctx context.Context, key fleet.GroupKey, c config.Change, ifETag *string) error
	Delete(ctx context.Context, key fleet.GroupKey) error
	// Reset drops what overrides a static group, or ends that a group is held whose
	// record was missing. It is durable when it returns nil.
	Reset(ctx context.Context, key fleet.GroupKey) error
}

// Instances are the records of the shard's instances.
type Instances interface {
	// Instances and Group list them in the order of their ids.
	Instances() []fleet.Instance
	Group(key fleet.GroupKey) []fleet.Instance
	Get(id fleet.InstanceID) (fleet.Instance, bool)
	// Malformed are the objects in the place of records that can't be read.
	Malformed() []fleet.Malformed
}

// Problems are those that last and those that come up.
type Problems interface {
	// OfGroup is what keeps the group from being as it is desired, as far as
	// something went wrong; the zero Problem when nothing did. atSize: it matters even
	// while the group has all its instances.
	OfGroup(key fleet.GroupKey) (p fleet.Problem, atSize bool)
	// Follow joins a reader for a tenant's problems, those that last first.
	Follow(tenant string) *broadcast.Reader[fleet.Problem]
}

// Config is what the service needs.
type Config struct {
	// Shard returns the current term's shard, or an error that tells the caller
	// where the leader is.
	Shard func() (Shard, error)
	// Renew makes a certificate for the caller of ctx and another key (PEM). Its
	// errors are kinds of package rpc.
	Renew func(ctx context.Context, publicKey string) (*nstancev1.Identity, error)
}

// Service implements OperatorService. Safe for concurrent use.
type Service struct {
	nstancev1.UnimplementedOperatorServiceServer
	cfg     Config
	streams streams
}

// New returns a service that serves cfg.Shard.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

var _ nstancev1.OperatorServiceServer = (*Service)(nil)

// open finds the term's shard and the tenant that calls.
func (s *Service) open(ctx context.Context) (Shard, string, error) {
	shard, err := s.cfg.Shard()
	if err != nil {
		return Shard{}, "", err
	}
	caller, ok := rpc.CallerFrom(ctx)
	if !ok {
		return Shard{}, "", rpc.Unauthenticated.Errorf("no client certificate")
	}
	return shard, caller.Tenant, nil
}
