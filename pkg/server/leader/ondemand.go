package leader

import (
	"context"
	"errors"
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

// CreateInstance writes what the key stands for, then the record. The conditional
// writes of these two make it one instance, whoever else is asked for it: callers at
// the same time, the next leader, and this one again after a lost reply.
func (o *onDemand) CreateInstance(ctx context.Context, n operators.NewInstance) (fleet.Instance, error) {
	i, err := o.create(ctx, n)
	return i, createError(err)
}

func (o *onDemand) create(ctx context.Context, n operators.NewInstance) (fleet.Instance, error) {
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

// place writes what is not there yet of an instance. lost: another call had its key
// name another one just now, so nothing was made.
func (o *onDemand) place(ctx context.Context, n operators.NewInstance, f found) (i fleet.Instance, lost bool, err error) {
	leave, err := o.tally.enter(n.Group.Tenant, o.records.OnDemand(n.Group.Tenant))
	if err != nil {
		return fleet.Instance{}, false, err
	}
	defer leave()
	if i, err = o.draft(n, f.id); err != nil {
		return fleet.Instance{}, false, err
	}
	if n.Key != "" && f.id == "" {
		id, err := o.claim(ctx, f.failed, i)
		if err != nil || id != i.ID {
			return fleet.Instance{}, err == nil, err
		}
	}
	i, err = o.record(ctx, i)
	return i, false, err
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
	case !ok && g.RecordMissing != "" && !o.records.lives(n.Group):
		return g, rpc.NotFound.Errorf("no such group %s", n.Group.Name)
	case g.Disabled != "":
		return g, rpc.Precondition.Errorf("group %s can't be used: %s", n.Group.Name, g.Disabled)
	case !ok:
		return g, rpc.NotFound.Errorf("no such group %s", n.Group.Name)
	case g.Removed:
		return g, rpc.Precondition.Errorf("group %s is being deleted", n.Group.Name)
	}
	shard := o.config.shard()
	err := shard.CheckOverrides(g, n.Overrides, o.cfg.Static.Checks(shard))
	var problems config.Problems
	if errors.As(err, &problems) {
		return g, &rpc.ViolationsError{Message: "invalid instance", Violations: violations(problems)}
	}
	return g, err
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
