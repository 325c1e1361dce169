package leader

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// operatorShard is what a term offers to operators.
type operatorShard struct{ *Term }

var _ operators.Shard = operatorShard{}

// Operators is what the term offers to package operators.
func (t *Term) Operators() operators.Shard { return operatorShard{t} }

// Keys lists the groups that are wanted or still have instances, sorted.
func (s operatorShard) Keys() []fleet.GroupKey {
	keys := map[fleet.GroupKey]bool{}
	for _, k := range s.wanted.Keys() {
		keys[k] = true
	}
	for _, i := range s.ledger.Instances() {
		if i.Phase != fleet.Deleted {
			keys[i.GroupKey()] = true
		}
	}
	return slices.SortedFunc(maps.Keys(keys), fleet.GroupKey.Compare)
}

func (s operatorShard) GroupETag(key fleet.GroupKey) string { return s.wanted.ETag(key) }

// GroupTrouble is what holds the whole shard, or the last problem of the group or
// of the shard.
// What holds the shard names VMs of every tenant, so others than the default one
// are told only that it is so.
func (s operatorShard) GroupTrouble(key fleet.GroupKey) operators.Trouble {
	held := s.loop.Held()
	switch {
	case held != "" && key.Tenant == fleet.DefaultTenant:
		return operators.Trouble{Reason: reconcile.ReasonOrphans, Message: held}
	case held != "":
		return operators.Trouble{Reason: reconcile.ReasonOrphans, Message: "the shard changes nothing until its administrator has settled a problem"}
	}
	p := s.troubles.of(key)
	if p.Message == "" && key.Tenant == fleet.DefaultTenant {
		p = s.troubles.ofShard(s.cfg.Now())
	}
	return operators.Trouble{Reason: p.Reason, Message: p.Message, AtSize: filesFail(p, s.cfg.Now())}
}

func (s operatorShard) Instances() []fleet.Instance { return s.ledger.Instances() }

func (s operatorShard) GroupInstances(key fleet.GroupKey) []fleet.Instance {
	return s.ledger.Group(key)
}

func (s operatorShard) Instance(id fleet.InstanceID) (fleet.Instance, bool) { return s.ledger.Get(id) }

func (s operatorShard) Health(id fleet.InstanceID) operators.Health {
	h := s.loop.Health(id)
	return operators.Health{
		Connected: h.Connected, LastReportAt: h.LastReportAt, Unhealthy: h.Unhealthy, ProviderState: string(h.VM),
		ConfigHash: s.files.ConfigHash(id),
	}
}

func (s operatorShard) Upsert(ctx context.Context, key fleet.GroupKey, c operators.Change) error {
	change := config.Change{
		Template: c.Template, InstanceType: c.InstanceType, SubnetPool: c.SubnetPool, Vars: c.Vars, Remove: c.Remove,
	}
	if c.Size != nil {
		size := int(*c.Size)
		change.Size = &size
	}
	err := s.edit(ctx, func(d config.Dynamic) (config.Dynamic, error) {
		return s.static.shard().Upsert(d, key, change, config.Checks{})
	})
	if err != nil {
		return s.editError(err)
	}
	s.loop.Kick(key)
	s.files.Changed(key)
	return nil
}

func (s operatorShard) Delete(ctx context.Context, key fleet.GroupKey) error {
	err := s.edit(ctx, func(d config.Dynamic) (config.Dynamic, error) {
		return s.static.shard().Remove(d, key)
	})
	switch {
	case errors.Is(err, config.ErrRestricted):
		return rpc.Precondition.Errorf("group %s is set by static config: remove it there, or scale it to 0", key)
	case err != nil:
		return s.editError(err)
	}
	s.loop.Kick(key)
	return nil
}

// editError turns what a change of a group may run into into a kind.
func (s operatorShard) editError(err error) error {
	var problems config.Problems
	switch {
	case errors.As(err, new(rpc.Kind)):
		return err
	case errors.Is(err, config.ErrNoGroup):
		return rpc.NotFound.Errorf("%w", err)
	case errors.Is(err, config.ErrRestricted), errors.Is(err, config.ErrRemoved):
		return rpc.Precondition.Errorf("%w", err)
	case errors.As(err, &problems):
		return &rpc.ViolationsError{Message: "invalid group", Violations: violations(problems)}
	default:
		return kind(err)
	}
}

func violations(problems config.Problems) []rpc.Violation {
	out := make([]rpc.Violation, 0, len(problems))
	for _, p := range problems {
		out = append(out, rpc.Violation{Field: p.Path, Description: p.Message})
	}
	return out
}

func (s operatorShard) Config() operators.ConfigStatus {
	c := s.static.now()
	return operators.ConfigStatus{
		ETag: string(c.info.ETag), LastModified: c.info.ModTime, Size: c.info.Size,
		RunningApplied: c.fromApplied, Violations: violations(c.problems), RestartRequired: slices.Clone(c.restart),
	}
}
