package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Ledger keeps the shard's records, as the leader of this term writes them. It
// is safe for concurrent use. The reading methods answer from memory, best in
// the order of the ids, and never call back into the loop; what they return is
// shared and not to be changed.
type Ledger interface {
	// Instances returns every record, tombstones included.
	Instances() []fleet.Instance
	// Group returns every record of one group.
	Group(key fleet.GroupKey) []fleet.Instance
	Get(id fleet.InstanceID) (fleet.Instance, bool)

	// Create stores a new record. It is durable, and the term's right to act
	// was checked after the write, when the error is nil. After an error the
	// record may exist; then a later Relist shows it.
	Create(ctx context.Context, i fleet.Instance) (fleet.Instance, error)
	// Update changes a record by an if-match write, after which Get and Group
	// show it. change may run more than once; its error is returned as it is
	// and nothing is written.
	Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error)
	// Remove ends a tombstone.
	Remove(ctx context.Context, id fleet.InstanceID) error
	// Relist reads the listing of the store and takes over what differs:
	// records that appeared, and records that another hand removed. It costs a
	// request per thousand records.
	Relist(ctx context.Context) (appeared, vanished []fleet.InstanceID, err error)
	// Recall reads one record that memory lacks by its key, since no listing is proof
	// that there is none, and reports whether memory has it then.
	Recall(ctx context.Context, tenant string, id fleet.InstanceID) (found bool, err error)
	// Vanished returns how many records, tombstones aside, the Relist under way
	// or else the last one has found to be removed so far.
	Vanished() int
	// Malformed returns the objects in the place of records that can't be
	// understood, in the order of their keys.
	Malformed() []fleet.Malformed
}

// Fence is the term's right to act.
type Fence interface {
	// Epoch is the number of this term.
	Epoch() uint64
	// Check returns nil when a mutation may start now. It becomes the guard of
	// every call to the provider.
	Check(ctx context.Context) error
}

// Groups is the wanted state. Its reading methods answer from memory.
type Groups interface {
	// Keys lists the groups that are defined.
	Keys() []fleet.GroupKey
	// Group returns a group as it is wanted now. One that is not defined comes with
	// false, and says whether what it may have left is to be left as it is: Disabled,
	// with RecordMissing, unless it is known that it is to go, which Removed says.
	Group(key fleet.GroupKey) (fleet.Group, bool)
	// Settings returns the durations that decisions use.
	Settings() plan.Settings
	// Forget removes a group's dynamic entry, durably.
	Forget(ctx context.Context, key fleet.GroupKey) error
	// Settle takes ids out of a group's leaving list, durably.
	Settle(ctx context.Context, key fleet.GroupKey, ids []fleet.InstanceID) error
}

// Builder renders what a VM is created with, registration nonce included. It
// leaves Spec.Subnet to the loop, which tries the pool's subnets in order.
type Builder interface {
	Build(ctx context.Context, i fleet.Instance, g fleet.Group) (provider.Spec, error)
}

// CreateRate bounds the creates of the whole shard.
type CreateRate struct {
	PerSecond   float64 // 0: unlimited
	Burst       int     // used with PerSecond, at least 1
	Concurrency int     // creates under way at one time, at least 1
}

// The reasons of problems.
const (
	ReasonProvider = "ProviderError"   // a call to the provider failed
	ReasonStorage  = "StorageError"    // a record could not be read or written
	ReasonBuild    = "InstanceInvalid" // what an instance is to be created with can't be rendered
	ReasonOrphans  = "UnrecordedVMs"   // VMs of this shard have no record
	ReasonAbsent   = "VMsNotFound"     // the provider does not find VMs whose agents are connected
)

// Config is what a Loop needs. All fields without "optional" are required.
type Config struct {
	Ledger   Ledger
	Fence    Fence
	Groups   Groups
	Builder  Builder
	Provider provider.Provider
	// NewID makes the id of a new instance.
	NewID func(kind string, now time.Time) (fleet.InstanceID, error)

	CreateRate     CreateRate
	CreateBackoff  time.Duration // the longest wait of a group whose creates fail
	MaxSurge       fleet.Surge   // instances of the whole shard beyond its size while groups rotate
	RequestTimeout time.Duration // of each call to the provider
	SweepInterval  time.Duration
	// Uniform draws from [0, 1). It may be called by several goroutines.
	Uniform func() float64
	// FirstSweep is how long after the takeover the first sweep comes, if that
	// is sooner than SweepInterval: one lease, after which nothing that the
	// previous leader sent can still land in the store.
	FirstSweep time.Duration

	// Listing is told of each attempt to list the VMs: page is called after
	// each page of it, ended once, with the error if there is one. Optional.
	Listing func() (page func(), ended func(error))

	// LoadBalancers returns the provider's targets of every load balancer by
	// its name, as groups name it. What it returns is not changed. Optional.
	LoadBalancers func() map[string][]string

	// NotLeader reports whether an error of the ledger, the groups or the fence
	// says that the term is over. Optional: then only the context ends the
	// loop.
	NotLeader func(error) bool
	// Report is told of every problem; the loop does not log them itself. It
	// must not block, and may be called by several goroutines.
	Report func(fleet.Problem)
	// Solved is told when a group has no problem of a reason any more, of those
	// that are not over with the next create: ReasonLoadBalancer and
	// ReasonCreatesFailing. It must not block, and may be called by several
	// goroutines. Optional.
	Solved func(key fleet.GroupKey, reason string)
	// Changed is told when what can be said about an instance has changed: its
	// record, its VM, its health. id is empty when the whole group is meant,
	// and key is zero too when every group is. It must not block, and may be
	// called by several goroutines. Optional.
	Changed func(key fleet.GroupKey, id fleet.InstanceID)
	Logger  *slog.Logger
}

func (c Config) check() error {
	return errors.Join(
		want(c.Ledger != nil, "Ledger", "a ledger"),
		want(c.Fence != nil, "Fence", "a fence"),
		want(c.Groups != nil, "Groups", "the wanted state"),
		want(c.Builder != nil, "Builder", "a builder"),
		want(c.Provider != nil, "Provider", "a provider"),
		want(c.NewID != nil, "NewID", "a function"),
		want(c.Report != nil, "Report", "a function"),
		want(c.Logger != nil, "Logger", "a logger"),
		want(c.Uniform != nil, "Uniform", "a function"),
		want(c.FirstSweep > 0, "FirstSweep", "more than 0"),
		c.tuning().check())
}

func want(ok bool, field, what string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("reconcile: %s: want %s", field, what)
}

// Tuning is the part of a Config that can change while the loop runs.
type Tuning struct {
	CreateRate     CreateRate
	CreateBackoff  time.Duration // of waits that begin from now on
	MaxSurge       fleet.Surge
	RequestTimeout time.Duration // of each call to the provider that begins from now on
	SweepInterval  time.Duration // counts from the end of the last sweep
}

func (c Config) tuning() Tuning {
	return Tuning{
		CreateRate: c.CreateRate, CreateBackoff: c.CreateBackoff, MaxSurge: c.MaxSurge,
		RequestTimeout: c.RequestTimeout, SweepInterval: c.SweepInterval,
	}
}

func (t Tuning) check() error {
	return errors.Join(
		want(t.CreateRate.PerSecond >= 0, "CreateRate.PerSecond", "0 or more"),
		want(t.CreateRate.PerSecond == 0 || t.CreateRate.Burst >= 1, "CreateRate.Burst", "at least 1"),
		want(t.CreateRate.Concurrency >= 1, "CreateRate.Concurrency", "at least 1"),
		want(t.CreateBackoff > 0, "CreateBackoff", "more than 0"),
		want(t.RequestTimeout > 0, "RequestTimeout", "more than 0"),
		want(t.SweepInterval > 0, "SweepInterval", "more than 0"))
}

func (r CreateRate) limiter() *rate.Limiter { return rate.NewLimiter(r.limit(), r.Burst) }

func (r CreateRate) limit() rate.Limit {
	if r.PerSecond > 0 {
		return rate.Limit(r.PerSecond)
	}
	return rate.Inf
}
