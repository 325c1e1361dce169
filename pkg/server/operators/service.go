// Package operators serves OperatorService: the API of a shard's leader for the Kubernetes
// operator, the admin CLI and scripts.
//
// Everything is scoped by the tenant of the caller's certificate. Another tenant's group or
// instance is not found, exactly like one that does not exist.
package operators

import (
	"context"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/outage"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Health is the runtime state of an instance beyond its record.
type Health struct {
	Connected     bool
	LastReportAt  time.Time // zero: none since takeover
	WithoutFiles  bool      // its agent has reported that it has no complete set of files
	Unhealthy     string    // the reason; empty if healthy
	ProviderState string
	Dead          bool   // its machine is known to work no more
	ConfigHash    string // last reported; empty: none since takeover
	// CertificateExpires is when the newest certificate of its agent expires; zero: none is connected.
	CertificateExpires time.Time
	LastError          string // empty if the last step succeeded or none ran
	LastErrorAt        time.Time
}

// Shard is what the leader's term offers to operators. Returned values are copies; errors are
// kinds of package rpc.
type Shard struct {
	// Admit admits a call of a tenant. It returns an error if the shard does not serve the
	// tenant or the tenant's quota is used up.
	Admit     func(tenant string) error
	Groups    Groups
	Rollouts  Rollouts
	Instances Instances
	Health    func(id fleet.InstanceID) Health
	Provider  config.Provider // creates the shard's machines
	// FilesUpToDate reports whether an instance of a group has the newest version of its files.
	FilesUpToDate func(i fleet.Instance, g fleet.Group) bool
	// Capacity returns the capacity of an instance type; ok is false while it is unknown. It
	// must not block.
	Capacity func(instanceType string) (c Capacity, ok bool)
	Problems Problems
	// Outage returns the current outage of object storage.
	Outage func() outage.Outage
	// CreatesFailing returns how the creates of a group fail, if they do; nil: unknown.
	CreatesFailing func(key fleet.GroupKey) (f fleet.CreatesFailing, failing bool)
	// Rotation returns how far a group is with the replacement of instances that work; nil: unknown.
	Rotation func(key fleet.GroupKey) fleet.Rotation
	// Transitions are those of the conditions of this term's groups.
	Transitions *Transitions

	OnDemand OnDemand
	Registry Registry
	Static   Static
	Watches  *Watches
	Events   Events
	Edits    Edits // optional
}

// rotation returns the rotation of a group as far as it is known.
func (s Shard) rotation(key fleet.GroupKey) (r fleet.Rotation) {
	if s.Rotation != nil {
		r = s.Rotation(key)
	}
	return r
}

// edit makes a change of a group, or of every group with the zero key, as an edit.
func (s Shard) edit(ctx context.Context, key fleet.GroupKey, change func() error) error {
	if s.Edits == nil {
		return change()
	}
	failed := s.Edits.Began(ctx, key)
	err := change()
	if err != nil && !errors.Is(err, rpc.Unavailable) { // it may have landed
		failed()
	}
	return err
}

// Edits remembers which call changed a group last, for traces. *traces.Edits implements it.
type Edits interface {
	// Began is called before an edit of a group takes effect, and failed if it does not. The zero key
	// stands for every group.
	Began(ctx context.Context, key fleet.GroupKey) (failed func())
}

// Groups are the desired groups.
type Groups interface {
	// All lists the groups that are defined or still have instances, sorted.
	All() []fleet.GroupKey
	// Group returns a group; ok is false if it is undefined, and then it is not changed
	// either.
	Group(key fleet.GroupKey) (g fleet.Group, ok bool)
	// Upsert and Delete are durable when they return nil. With ifETag, Upsert changes the
	// group only if its ETag matches, or with an empty ifETag creates a group that does not
	// exist; otherwise it returns rpc.Conflict. managedBefore is what managed the group until the
	// change; empty if that is nothing, or continues to manage it.
	Upsert(ctx context.Context, key fleet.GroupKey, c config.Change, ifETag *string) (managedBefore string, err error)
	Delete(ctx context.Context, key fleet.GroupKey, by config.By) error
	// Reset drops the overrides of a static group, or releases a group that is held because
	// its record is missing. It is durable when it returns nil.
	Reset(ctx context.Context, key fleet.GroupKey, by config.By) error
}

// Rollouts are the rollouts of groups.
type Rollouts interface {
	// Abort makes a group refuse its present definition, and Retry ends that. They are durable when they
	// return nil. ifETag is as in Groups.Upsert.
	Abort(ctx context.Context, key fleet.GroupKey, ifETag *string) error
	Retry(ctx context.Context, key fleet.GroupKey, ifETag *string) error
}

// Instances are the records of the shard's instances.
type Instances interface {
	// Instances and Group return instances sorted by ID.
	Instances() []fleet.Instance
	Group(key fleet.GroupKey) []fleet.Instance
	// Page returns up to limit instances of a group, or of its tenant if key has no name, by ID: those
	// after an ID that are of wanted phases. more says that others follow.
	Page(key fleet.GroupKey, after fleet.InstanceID, limit int, wanted func(fleet.Phase) bool) (page []fleet.Instance, more bool)
	Get(id fleet.InstanceID) (fleet.Instance, bool)
	// Malformed lists the record objects that can't be read.
	Malformed() []fleet.Malformed
}

// Problems are the ongoing problems and a stream of new ones.
type Problems interface {
	// OfGroup returns the problem that keeps the group from its desired state, or the zero
	// Problem; of a complete group, one that its instances have although they work.
	OfGroup(key fleet.GroupKey, complete bool) fleet.Problem
	// Follow subscribes to a tenant's problems, starting with the ongoing ones.
	Follow(tenant string) *broadcast.Reader[fleet.Problem]
}

// Config is what the service needs.
type Config struct {
	// Shard returns the current term's shard, or an error that names the leader.
	Shard func() (Shard, error)
	// Leadership describes the leader, if this server is it, or returns an error that names it.
	Leadership func() (Leadership, error)
	// Renew issues a certificate for the caller of ctx and a new public key (PEM). Its errors
	// are kinds of package rpc.
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

// open returns the term's shard and the calling tenant, if the shard admits the call.
func (s *Service) open(ctx context.Context) (Shard, string, error) {
	shard, caller, err := s.caller(ctx)
	if err == nil {
		err = shard.Admit(caller.Tenant)
	}
	if err != nil {
		return Shard{}, "", err
	}
	return shard, caller.Tenant, nil
}

// caller returns the term's shard and the caller.
func (s *Service) caller(ctx context.Context) (Shard, pki.Caller, error) {
	shard, err := s.cfg.Shard()
	if err != nil {
		return Shard{}, pki.Caller{}, err
	}
	caller, ok := rpc.CallerFrom(ctx)
	if !ok {
		return Shard{}, pki.Caller{}, rpc.Unauthenticated.Errorf("no client certificate")
	}
	return shard, caller, nil
}
