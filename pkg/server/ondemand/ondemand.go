// Package ondemand creates and removes single instances, by idempotency keys, within the limits of
// their groups and tenants.
package ondemand

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/writes"
)

// Config configures a Service. All fields are required.
type Config struct {
	Records   writes.Records
	Fence     Fence
	Loop      Loop
	Shard     func() *config.Shard // the running config
	Checks    func(*config.Shard) config.Checks
	Group     func(fleet.GroupKey) (fleet.Group, bool)
	Admission Admission
	Touched   func(fleet.GroupKey, fleet.InstanceID) // called when a record may have changed
	Now       func() time.Time
	Random    io.Reader
}

// Fence guards what a term does: *election.Term.
type Fence interface {
	Epoch() uint64
	Check(ctx context.Context) error
}

// Loop changes records and acts on them: *reconcile.Loop.
type Loop interface {
	// Update changes a record durably, as writes.Records does, together with what follows from that.
	Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) error
}

// Admission admits n object reads from the store for a tenant.
type Admission interface {
	Reads(tenant string, n int) error
}

// Service creates and removes single instances. Safe for concurrent use.
type Service struct {
	cfg    Config
	tally  tally
	limits limits
}

// New returns a service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

var _ operators.OnDemand = (*Service)(nil)

// CreateInstance writes the idempotency key's request, then the record. Both writes are
// conditional, so that concurrent calls, the next leader, and a retry after a lost reply
// all get the same instance.
func (o *Service) CreateInstance(ctx context.Context, n operators.NewInstance) (fleet.Instance, error) {
	i, err := o.create(ctx, n)
	return i, createError(err)
}

func (o *Service) create(ctx context.Context, n operators.NewInstance) (fleet.Instance, error) {
	for {
		found, err := o.found(ctx, n)
		if err != nil || found.instance.ID != "" {
			return found.instance, err
		}
		i, lost, err := o.place(ctx, n, found)
		if !lost {
			return i, err
		}
	}
}

// place writes the missing request and record of an instance. lost is true if a concurrent call
// claimed the key for another instance, and nothing was created.
func (o *Service) place(ctx context.Context, n operators.NewInstance, f found) (i fleet.Instance, lost bool, err error) {
	tenant := n.Group.Tenant
	recorded := func() ledger.Count { return o.cfg.Records.Counts(tenant).OnDemand }
	leave, err := o.tally.enter(tenant, recorded, o.cfg.Shard().QuotaOf(tenant).OnDemand)
	if err != nil {
		return fleet.Instance{}, false, err
	}
	defer leave()
	if i, err = o.draft(n, f.id); err != nil {
		return fleet.Instance{}, false, err
	}
	operators.Making(ctx, i)
	end, err := o.reserve(i)
	if err != nil {
		return fleet.Instance{}, false, err
	}
	defer end()
	if n.Key != "" && f.id == "" {
		id, err := o.claim(ctx, f.failed, i)
		if err != nil || id != i.ID {
			return fleet.Instance{}, err == nil, err
		}
	}
	i, err = o.record(ctx, i)
	return i, false, err
}

// draft returns the record of a requested instance. An empty id means a new one.
func (o *Service) draft(n operators.NewInstance, id fleet.InstanceID) (fleet.Instance, error) {
	g, err := o.groupFor(n)
	if err != nil {
		return fleet.Instance{}, err
	}
	now := o.cfg.Now()
	if id == "" {
		if id, err = fleet.NewID(g.Kind, now, o.cfg.Random); err != nil {
			return fleet.Instance{}, err
		}
	}
	i := fleet.Instance{ID: id, Tenant: n.Group.Tenant, Group: n.Group.Name, OnDemand: true, RequestKey: n.Key, Phase: fleet.Pending}
	i.Namespace = n.Namespace
	if n.Overrides.InstanceType != "" || len(n.Overrides.Vars) > 0 {
		i.Overrides = &n.Overrides
	}
	return o.built(i, g, now)
}

// built fills in what the group's definition sets for an instance.
func (o *Service) built(i fleet.Instance, g fleet.Group, now time.Time) (fleet.Instance, error) {
	own, err := o.cfg.Shard().ForInstance(g, i)
	if err != nil {
		return fleet.Instance{}, err
	}
	at := now.UTC()
	i.CreatedAt, i.Hashes, i.GroupRevision = at, own.Hashes, g.RecordRevision
	i.Provider.InstanceType = own.InstanceType
	return i, nil
}

// groupFor returns the group that an instance is created from.
func (o *Service) groupFor(n operators.NewInstance) (fleet.Group, error) {
	g, ok := o.cfg.Group(n.Group)
	switch {
	case !ok && g.RecordMissing != "" && !o.cfg.Records.Lives(n.Group):
		return g, rpc.NotFound.Errorf("no such group %s", n.Group.Name)
	case g.Disabled != "":
		return g, rpc.Precondition.Errorf("group %s can't be used: %s", n.Group.Name, g.Disabled)
	case !ok:
		return g, rpc.NotFound.Errorf("no such group %s", n.Group.Name)
	case g.Removed:
		return g, rpc.Precondition.Errorf("group %s is being deleted", n.Group.Name)
	}
	shard := o.cfg.Shard()
	err := shard.CheckOverrides(g, n.Overrides, o.cfg.Checks(shard))
	var problems config.Problems
	if errors.As(err, &problems) {
		return g, &rpc.ViolationsError{Message: "invalid instance", Violations: writes.Violations(problems)}
	}
	return g, err
}

// record creates the instance's record, or returns an existing one: a concurrent call or the
// previous leader may have just written it. The loop creates the machine.
func (o *Service) record(ctx context.Context, i fleet.Instance) (recorded fleet.Instance, err error) {
	defer o.cfg.Touched(i.GroupKey(), i.ID) // even after an error the record may exist
	recorded, err = o.cfg.Records.Create(ctx, i)
	there, ok := o.cfg.Records.Get(i.ID)
	switch {
	case !errors.Is(err, ledger.ErrConflict) || !ok:
		return recorded, err
	case there.Phase == fleet.Pending && there.Epoch < o.cfg.Fence.Epoch():
		// It landed after this leader had read all records. No leader has acted on it, and none
		// would unless this term adopts it.
		return o.cfg.Records.Update(ctx, i.ID, func(*fleet.Instance) error { return nil })
	default:
		return there, o.cfg.Fence.Check(ctx)
	}
}

func createError(err error) error {
	if errors.Is(err, ledger.ErrRequest) {
		return rpc.Precondition.Errorf("the idempotency key can't be used: %w", err)
	}
	return writes.Kind(err)
}

// tally counts the creations under way, which the ledger does not know yet. Safe for concurrent
// use; the zero value is ready to use.
type tally struct {
	mu    sync.Mutex
	under map[string]int // by tenant
}

// enter starts a creation for a tenant, unless it has limit instances; a nil limit means the
// maximum for any tenant. Instances that are being removed count until they are gone. The
// caller calls leave once, when the creation has ended and its record counts. recorded is
// called with the lock held, so that no creation ends meanwhile.
func (t *tally) enter(tenant string, recorded func() ledger.Count, limit *int) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	there := recorded()
	have := there.All() + t.under[tenant]
	if have >= config.MaxOnDemand {
		return nil, rpc.Exhausted.Errorf("the tenant has %d on-demand instances, which is the maximum: delete some first", config.MaxOnDemand)
	}
	living := config.Living{All: there.All(), Leaving: there.Leaving}
	if err := config.CheckLimit(tenant, "on_demand", limit, have, have+1, living); err != nil {
		return nil, rpc.Exhausted.Errorf("%w", err)
	}
	if t.under == nil {
		t.under = map[string]int{}
	}
	t.under[tenant]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.under[tenant]--; t.under[tenant] == 0 {
			delete(t.under, tenant)
		}
	}, nil
}
