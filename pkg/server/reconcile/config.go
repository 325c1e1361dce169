package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/traces"
)

// Ledger stores the shard's records for the leader of this term. It is safe for
// concurrent use. The reading methods answer from memory, preferably sorted by id,
// and never call back into the loop; their results are shared and must not be changed.
type Ledger interface {
	// Instances returns every record, tombstones included.
	Instances() []fleet.Instance
	// Members returns every record of one group, reusing room; they are never changed in place.
	Members(key fleet.GroupKey, room []*fleet.Instance) []*fleet.Instance
	Get(id fleet.InstanceID) (fleet.Instance, bool)

	// Create stores a new record. If the error is nil, the record is durable and the
	// term was verified after the write. After an error the record may exist; a later
	// Relist then shows it.
	Create(ctx context.Context, i fleet.Instance) (fleet.Instance, error)
	// Update changes a record with an if-match write; then Get and Members return the new
	// one. change may run more than once; if it fails, its error is returned unchanged
	// and nothing is written.
	Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error)
	// Remove deletes a tombstone.
	Remove(ctx context.Context, id fleet.InstanceID) error
	// Relist lists the store and applies the differences: records that appeared, and
	// records that were removed externally. It costs one request per thousand records.
	Relist(ctx context.Context) (appeared, vanished []fleet.InstanceID, err error)
	// Recall reads by key a record that is not in memory, since a listing may lack it,
	// and reports whether it exists.
	Recall(ctx context.Context, tenant string, id fleet.InstanceID) (found bool, err error)
	// Reread replaces a record in memory with the stored one, read by key.
	Reread(ctx context.Context, tenant string, id fleet.InstanceID) error
	// Unread returns the records of a group, without on-demand instances and tombstones, that this term
	// knows from a listing only, which may have shown them as they were: it has neither read nor written them.
	Unread(key fleet.GroupKey) []fleet.InstanceID
	// Confirm reads a known record, which then is no longer unread. After an error memory is as before, also
	// if the record is gone: how many are is for Relist to find.
	Confirm(ctx context.Context, tenant string, id fleet.InstanceID) error
	// Vanished returns how many records, without tombstones, the Relist in progress, or
	// the last one, has found to be removed so far.
	Vanished() int
	// Malformed returns the objects at keys of records that can't be decoded, sorted by
	// key.
	Malformed() []fleet.Malformed
}

// Fence is the term's right to act.
type Fence interface {
	// Epoch returns the number of this term.
	Epoch() uint64
	// Check returns nil if a mutation may start now. It guards every call to the
	// provider.
	Check(ctx context.Context) error
}

// Groups is the desired state. Its reading methods answer from memory.
type Groups interface {
	// Keys returns the defined groups.
	Keys() []fleet.GroupKey
	// Group returns the desired state of a group. It returns false if the group is not
	// defined; the result then is Removed if the group is known to be removed, or else
	// Disabled with RecordMissing, so that its instances are kept.
	Group(key fleet.GroupKey) (fleet.Group, bool)
	// Settings returns the durations that decisions use.
	Settings() plan.Settings
	// Forget removes a group's dynamic entry, durably.
	Forget(ctx context.Context, key fleet.GroupKey) error
	// ClearLeaving removes ids from a group's leaving list, durably.
	ClearLeaving(ctx context.Context, key fleet.GroupKey, ids []fleet.InstanceID) error
	// ForgetAbort drops an abort that is not in effect from a group's record, durably.
	ForgetAbort(ctx context.Context, key fleet.GroupKey, refused string) error
}

// Builder renders the spec of a VM, including its registration nonce. The loop sets
// Spec.Subnet, trying the pool's subnets in order.
type Builder interface {
	Build(ctx context.Context, i fleet.Instance, g fleet.Group) (provider.Spec, error)
}

// Certified returns the host name and the addresses that an instance's certificates may contain, by the
// names (lowercase) and the addresses that the provider shows of its VM. The addresses keep their order. It must not block.
type Certified func(i fleet.Instance, names []string, addresses []netip.Addr) (hostname string, certified []netip.Addr)

// Config is what a Loop needs. All fields without "optional" are required.
type Config struct {
	Ledger   Ledger
	Fence    Fence
	Groups   Groups
	Builder  Builder
	Provider provider.Provider
	// NewID returns the id of a new instance.
	NewID func(kind string, now time.Time) (fleet.InstanceID, error)

	CreateRate     fair.Rate     // of the whole shard
	CreateBackoff  time.Duration // the maximum back-off of a group whose creates fail
	MaxSurge       fleet.Surge   // instances of the whole shard beyond its size while groups rotate
	RequestTimeout time.Duration // of each call to the provider
	SweepInterval  time.Duration
	Quiet          time.Duration // how long an agent does not call at most, if it works
	// Called returns when the agent of an instance without a record last called with a valid
	// certificate; zero: never. Safe for concurrent use.
	Called func(fleet.InstanceID) time.Time
	// Uniform draws from [0, 1). Safe for concurrent use.
	Uniform func() float64
	// FirstSweep is the delay of the first sweep after the takeover, if shorter than
	// SweepInterval: one lease, after which no write of the previous leader can still
	// reach the store.
	FirstSweep time.Duration

	// First is the first list of the VMs, started with the takeover. Optional: if nil, or if it
	// failed, the loop lists them.
	First *paced.Listed
	// Listing is called for each attempt to list the VMs. page is called after each page,
	// ended once, with the error if any. Optional.
	Listing func() (page func(), ended func(error))

	// Certified keeps the records of registered instances to what the provider shows of their VMs.
	// Optional: if nil, records keep their host names and addresses.
	Certified Certified

	// LoadBalancers returns the provider's targets of every load balancer, by the
	// load balancer's name. The result is not modified. Optional.
	LoadBalancers func() map[string][]string

	// NotLeader reports whether an error of the ledger, the groups or the fence
	// means that the term is over. Optional: if nil, only the context ends the loop.
	NotLeader func(error) bool
	// Problems is the set of what is wrong. The loop does not log problems itself.
	Problems Problems
	// Changed is called when the observable state of an instance has changed: its record,
	// its VM or its health. An empty id means the whole group, a zero key every group. It
	// must not block, and must be safe for concurrent use. Optional.
	Changed func(key fleet.GroupKey, id fleet.InstanceID)
	// Rotating is called with each decision about a group. It must not block. Optional.
	Rotating func(key fleet.GroupKey, r fleet.Rotation)
	// Record is called with each decision once it is durable. It must not block, and must be safe
	// for concurrent use. Optional.
	Record func(fleet.Event)
	// Replacing is called before the create of a replacement, with the first sign of the loss
	// that it replaces. It must not block, and must be safe for concurrent use. Optional.
	Replacing func(id fleet.InstanceID, lost time.Time)
	Starts    *traces.Starts // traces the starts of instances. Optional
	Logger    *slog.Logger
}

// Problems is a set of problems. Its methods must not block, and may be called by several
// goroutines.
type Problems interface {
	// Set adds a problem, or replaces the one with the same group, instance and reason.
	Set(fleet.Problem)
	// Clear ends the problem of a reason of an instance, of all instances of a group (no id), or
	// of the shard (the zero key).
	Clear(key fleet.GroupKey, id fleet.InstanceID, reason string)
}

func (c Config) check() error {
	return errors.Join(
		want(c.Ledger != nil, "Ledger", "a ledger"),
		want(c.Fence != nil, "Fence", "a fence"),
		want(c.Groups != nil, "Groups", "the wanted state"),
		want(c.Builder != nil, "Builder", "a builder"),
		want(c.Provider != nil, "Provider", "a provider"),
		want(c.NewID != nil, "NewID", "a function"),
		want(c.Problems != nil, "Problems", "a set"),
		want(c.Logger != nil, "Logger", "a logger"),
		want(c.Uniform != nil, "Uniform", "a function"),
		want(c.Called != nil, "Called", "a function"),
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
	CreateRate     fair.Rate
	CreateBackoff  time.Duration // applies to new waits
	MaxSurge       fleet.Surge
	RequestTimeout time.Duration // applies to new calls to the provider
	SweepInterval  time.Duration // from the end of a sweep to the start of the next
	Quiet          time.Duration // how long an agent does not call at most, if it works
}

func (c Config) tuning() Tuning {
	return Tuning{
		CreateRate: c.CreateRate, CreateBackoff: c.CreateBackoff, MaxSurge: c.MaxSurge,
		RequestTimeout: c.RequestTimeout, SweepInterval: c.SweepInterval, Quiet: c.Quiet,
	}
}

func (t Tuning) check() error {
	return errors.Join(
		want(t.CreateRate.PerSecond >= 0, "CreateRate.PerSecond", "0 or more"),
		want(t.CreateRate.PerSecond == 0 || t.CreateRate.Burst >= 1, "CreateRate.Burst", "at least 1"),
		want(t.CreateRate.Concurrency >= 1, "CreateRate.Concurrency", "at least 1"),
		want(t.CreateBackoff > 0, "CreateBackoff", "more than 0"),
		want(t.RequestTimeout > 0, "RequestTimeout", "more than 0"),
		want(t.SweepInterval > 0, "SweepInterval", "more than 0"),
		want(t.Quiet > 0, "Quiet", "more than 0"))
}

// limitsOf returns the limits of calls to the provider.
func limitsOf(r fair.Rate) paced.Limits {
	return paced.Limits{Deletes: r.Concurrency, PerSecond: r.PerSecond}
}
