// Package operators serves OperatorService: what the Kubernetes operator, the
// admin CLI and scripts ask of a shard's leader.
//
// Everything is scoped by the tenant of the caller's certificate. Another
// tenant's group or instance is not found, exactly like one that does not exist.
package operators

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Health is what is known of an instance beyond its record.
type Health struct {
	Connected     bool
	LastReportAt  time.Time // zero: none since takeover
	Unhealthy     string    // why; empty when it is not
	ProviderState string
	ConfigHash    string // that it last reported; empty: none since takeover
}

// ConfigStatus is which static config runs.
type ConfigStatus struct {
	ETag           string
	LastModified   time.Time
	Size           int64
	RunningApplied bool
	Violations     []rpc.Violation // why config/ can't run, when applied/ does
	// RestartRequired names the fields of the config that this server does without
	// until it is started anew.
	RestartRequired []string
}

// Refreshed is what came of reading the static config again.
type Refreshed struct {
	Updated         bool // false: it is what ran already
	ETag            string
	RestartRequired []string // as in ConfigStatus
}

// Trouble is something that a person may have to know.
type Trouble struct {
	Reason  string // a short constant, such as ProviderError
	Message string // empty: no trouble
	AtSize  bool   // matters even while the group has all its instances
}

// Change is what an UpsertGroup asks for; nil fields stay as they are.
type Change struct {
	Size         *int32
	Template     *string
	InstanceType *string
	SubnetPool   *string
	Vars         map[string]any
	Remove       []fleet.InstanceID
}

// Shard is what the leader's term offers to operators. What it returns is the
// caller's own copy.
type Shard interface {
	// Keys lists the groups that are wanted or still have instances, sorted.
	Keys() []fleet.GroupKey
	Group(key fleet.GroupKey) (fleet.Group, bool)
	// GroupETag changes with every change of the group's definition.
	GroupETag(key fleet.GroupKey) string
	// GroupTrouble is what keeps the group from being as it is wanted, as far as
	// something went wrong; the zero Trouble when nothing did.
	GroupTrouble(key fleet.GroupKey) Trouble
	Instances() []fleet.Instance
	GroupInstances(key fleet.GroupKey) []fleet.Instance
	Instance(id fleet.InstanceID) (fleet.Instance, bool)
	Health(id fleet.InstanceID) Health
	// Upsert and Delete are durable when they return nil. Their errors are kinds
	// of package rpc.
	Upsert(ctx context.Context, key fleet.GroupKey, c Change) error
	Delete(ctx context.Context, key fleet.GroupKey) error
	OnDemand
	Registry
	Config() ConfigStatus
	// Refresh reads the static config again and goes over to it if it is another
	// one. When it returns nil that is durable. Its errors are kinds of package
	// rpc; after one of them the config that ran goes on to run.
	Refresh(ctx context.Context) (Refreshed, error)
}

// Config is what the service needs.
type Config struct {
	// Shard returns the current term's shard, or an error that tells the caller
	// where the leader is.
	Shard func() (Shard, error)
	// Watches returns what the current term's watches follow, or the same error.
	Watches func() (*Watches, error)
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
		return nil, "", err
	}
	caller, ok := rpc.CallerFrom(ctx)
	if !ok {
		return nil, "", rpc.Unauthenticated.Errorf("no client certificate")
	}
	return shard, caller.Tenant, nil
}
