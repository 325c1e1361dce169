package leader

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/operators"
)

// onDemand makes and removes single instances. Safe for concurrent use.
type onDemand struct {
	cfg     Config
	config  *running
	groups  *groups
	records records
	touched func(fleet.GroupKey, fleet.InstanceID) // called when a record may have changed
	tally   tally
}

var _ operators.OnDemand = (*onDemand)(nil)

// CreateInstance writes what the key stands for, then the record. The if-absent
// writes of these two make it one instance, whoever else is asked for it: callers at
// the same time, the next leader, and this one again after a lost reply.
func (o *onDemand) CreateInstance(ctx context.Context, n operators.NewInstance) (fleet.Instance, error) {
	i, err := o.create(ctx, n)
	return i, createError(err)
}

func (o *onDemand) create(ctx context.Context, n operators.NewInstance) (fleet.Instance, error) {
	var request ledger.Request
	if n.Key != "" {
		found, err := o.records.Request(ctx, n.Group.Tenant, n.Key)
		if err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return fleet.Instance{}, err
		}
		request = found
	}
	if request.ID != "" {
		if err := differs(n, request); err != nil {
			return fleet.Instance{}, err
		}
		if i, err := o.named(ctx, request); i.ID != "" || err != nil {
			return i, err
		}
	}
	leave, err := o.tally.enter(n.Group.Tenant, o.records.OnDemand(n.Group.Tenant))
	if err != nil {
		return fleet.Instance{}, err
	}
	defer leave()
	i, err := o.draft(n, request.ID)
	if err != nil {
		return fleet.Instance{}, err
	}
	if n.Key != "" && request.ID == "" {
		id, err := o.claim(ctx, i)
		if err != nil {
			return fleet.Instance{}, err
		}
		if id != i.ID { // another call had this key name another one just now
			return o.create(ctx, n)
		}
	}
	return o.record(ctx, i)
}

// named is the instance that a request names: as its record says, or as gone. It is
// the zero Instance when its record was never written, as after a crash in between.
func (o *onDemand) named(ctx context.Context, r ledger.Request) (fleet.Instance, error) {
	if i, ok := o.records.Get(r.ID); ok {
		return i, o.cfg.Fence.Check(ctx)
	}
	// A record that left since r was read has its request say so: read it again.
	r, err := o.records.Request(ctx, r.Tenant, r.Key)
	if err != nil || !r.Gone {
		return fleet.Instance{}, err
	}
	return fleet.Instance{
		ID: r.ID, Tenant: r.Tenant, Group: r.Group, OnDemand: true, Overrides: r.Overrides, RequestKey: r.Key,
		Phase: fleet.Deleted, CreatedAt: r.CreatedAt,
	}, o.cfg.Fence.Check(ctx)
}

// draft is the record of an instance that is asked for now; without an id it gets
// a new one.
func (o *onDemand) draft(n operators.NewInstance, id fleet.InstanceID) (fleet.Instance, error) {
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
	if n.Overrides.InstanceType != "" || len(n.Overrides.Vars) > 0 {
		i.Overrides = &n.Overrides
	}
	return o.built(i, g, now)
}

// built fills in what an instance of the group is made with.
func (o *onDemand) built(i fleet.Instance, g fleet.Group, now time.Time) (fleet.Instance, error) {
	own, err := o.config.shard().ForInstance(g, i)
	if err != nil {
		return fleet.Instance{}, err
	}
	at := now.UTC()
	i.CreatedAt, i.Hashes = at, own.Hashes
	i.Provider.InstanceType = own.InstanceType
	return i, nil
}

// groupFor is the group whose definition an instance is made from.
func (o *onDemand) groupFor(n operators.NewInstance) (fleet.Group, error) {
	g, ok := o.groups.Group(n.Group)
	switch {
	case g.Disabled != "":
		return g, rpc.Precondition.Errorf("group %s can't be used: %s", n.Group.Name, g.Disabled)
	case !ok:
		return g, rpc.NotFound.Errorf("no such group %s", n.Group.Name)
	case g.Removed:
		return g, rpc.Precondition.Errorf("group %s is being deleted", n.Group.Name)
	}
	err := o.config.shard().CheckOverrides(g, n.Overrides, config.Checks{})
	var problems config.Problems
	if errors.As(err, &problems) {
		return g, &rpc.ViolationsError{Message: "invalid instance", Violations: violations(problems)}
	}
	return g, err
}

// claim has the instance's key name it, and returns the id that it names now.
func (o *onDemand) claim(ctx context.Context, i fleet.Instance) (fleet.InstanceID, error) {
	r := ledger.Request{Tenant: i.Tenant, Key: i.RequestKey, ID: i.ID, Group: i.Group, Overrides: i.Overrides, CreatedAt: i.CreatedAt}
	r, err := during(ctx, o.records.writes, func(ctx context.Context) (ledger.Request, error) { return o.records.writer.Claim(ctx, r) })
	return r.ID, err
}

// record writes the instance's record, or finds the one that is there: another call
// or the leader before may have written it a moment ago. The loop makes the machine.
func (o *onDemand) record(ctx context.Context, i fleet.Instance) (recorded fleet.Instance, err error) {
	defer o.touched(i.GroupKey(), i.ID) // whatever became of the answer, the record may be there
	recorded, err = o.records.Create(ctx, i)
	there, ok := o.records.Get(i.ID)
	switch {
	case !errors.Is(err, ledger.ErrConflict) || !ok:
		return recorded, err
	case there.Phase == fleet.Pending && there.Epoch < o.cfg.Fence.Epoch():
		// It landed after this leader had read all records. Nothing was done with it,
		// and nothing would be unless this term takes it for its own.
		return o.records.Update(ctx, i.ID, func(*fleet.Instance) error { return nil })
	default:
		return there, o.cfg.Fence.Check(ctx)
	}
}

// DeleteByKey asks that the instance goes which a key names. Where its creation
// came no further than the request, its record is written as one of an instance that
// is to go: so whoever repeats the creation finds it gone, and a write of the record
// that is still under way somewhere comes too late.
func (o *onDemand) DeleteByKey(ctx context.Context, tenant, key string) error {
	r, err := o.records.Request(ctx, tenant, key)
	if errors.Is(err, ledger.ErrNotFound) {
		return rpc.NotFound.Errorf("no instance was created with the idempotency key %s", key)
	}
	if err != nil {
		return createError(err)
	}
	i, err := o.named(ctx, r)
	if err == nil && i.ID == "" {
		i, err = o.recordLeaving(ctx, r)
	}
	switch {
	case err != nil:
		return createError(err)
	case i.Phase == fleet.Deleted || i.RemovalAskedAt != nil:
		return nil
	}
	return o.DeleteInstance(ctx, tenant, i.ID)
}

func (o *onDemand) recordLeaving(ctx context.Context, r ledger.Request) (fleet.Instance, error) {
	i := fleet.Instance{
		ID: r.ID, Tenant: r.Tenant, Group: r.Group, OnDemand: true, Overrides: r.Overrides, RequestKey: r.Key, Phase: fleet.Pending,
	}
	g, _ := o.groups.Group(i.GroupKey())
	i, err := o.built(i, g, o.cfg.Now())
	if err != nil {
		return fleet.Instance{}, err
	}
	i.RemovalAskedAt = &i.CreatedAt
	return o.record(ctx, i)
}

// differs says what is asked for otherwise than the key was first used for.
func differs(n operators.NewInstance, r ledger.Request) error {
	var was fleet.Overrides
	if r.Overrides != nil {
		was = *r.Overrides
	}
	switch {
	case r.Group != n.Group.Name:
		return rpc.Precondition.Errorf("group: the idempotency key %s names an instance of group %s, not %s", n.Key, r.Group, n.Group.Name)
	case was.InstanceType != n.Overrides.InstanceType:
		return rpc.Precondition.Errorf("instance_type: the idempotency key %s names an instance with the override %q, not %q",
			n.Key, was.InstanceType, n.Overrides.InstanceType)
	case !reflect.DeepEqual(was.Vars, n.Overrides.Vars):
		return rpc.Precondition.Errorf("vars: the idempotency key %s names an instance with other vars", n.Key)
	default:
		return nil
	}
}

func createError(err error) error {
	if errors.Is(err, ledger.ErrRequest) {
		return rpc.Precondition.Errorf("the idempotency key can't be used: %w", err)
	}
	return kind(err)
}

// maxOnDemand is how many on-demand instances a tenant may have at a time: as many
// as a group may be large.
const maxOnDemand = config.MaxGroupSize

// tally counts the creations under way, which the ledger does not know yet. It is
// safe for concurrent use; the zero value is ready.
type tally struct {
	mu    sync.Mutex
	under map[string]int // by tenant
}

// enter begins a creation for a tenant that has so many instances already. The
// caller calls leave once when the creation has ended.
func (t *tally) enter(tenant string, have int) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have+t.under[tenant] >= maxOnDemand {
		return nil, rpc.Exhausted.Errorf("the tenant has %d on-demand instances, more are not allowed: delete some first", maxOnDemand)
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
