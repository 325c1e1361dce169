package groups

import (
	"context"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
)

// Rollouts are the rollouts of groups.
type Rollouts struct{ *Groups }

var _ operators.Rollouts = Rollouts{}

// Abort implements operators.Rollouts: the group refuses its present definition, in favor of the one
// that most of its outdated instances were built from.
func (g Rollouts) Abort(ctx context.Context, key fleet.GroupKey, ifETag *string) error {
	return g.change(ctx, key, ifETag, func(was config.GroupRecord) (config.GroupRecord, error) {
		if !g.cfg.Counted() {
			return was, rpc.Unavailable.Errorf("abort the rollout of group %s: not all machines are known: the provider has not listed them in "+
				"this term, or the record of one can't be read", key)
		}
		r := config.Rollout{Built: builtOf(g.records.Group(key)), Before: g.cfg.Before()}
		return config.AbortRollout(g.static, key, was, r, g.cfg.Checks(g.static))
	})
}

// Retry implements operators.Rollouts: the group has the definition that it refused.
func (g Rollouts) Retry(ctx context.Context, key fleet.GroupKey, ifETag *string) error {
	return g.change(ctx, key, ifETag, func(was config.GroupRecord) (config.GroupRecord, error) {
		return config.RetryRollout(g.static, key, was)
	})
}

// change edits the record of a group that has one, or that the static config defines.
func (g Rollouts) change(
	ctx context.Context, key fleet.GroupKey, ifETag *string, to func(config.GroupRecord) (config.GroupRecord, error),
) error {
	return editError(g.edit(ctx, edit{key: key, asked: true, change: func(now groupNow) (config.GroupRecord, error) {
		if err := now.matches(key, ifETag); err != nil {
			return config.GroupRecord{}, err
		}
		if !now.defined && g.records.Lives(key) {
			return config.GroupRecord{}, config.ErrUnknownGroup
		}
		return to(now.record)
	}}))
}

// ForgetAbort implements reconcile.Groups: it drops an abort that is not in effect any more.
func (g abreast) ForgetAbort(ctx context.Context, key fleet.GroupKey, refused string) error {
	return g.edit(ctx, edit{key: key, change: func(now groupNow) (config.GroupRecord, error) {
		if now.group.Asked != nil {
			return now.record, nil
		}
		return now.record.ForgetAbort(refused), nil
	}})
}

// builtOf counts the instances of a group that work and stay, by what they were built from.
func builtOf(all []fleet.Instance) map[string]int {
	built := map[string]int{}
	for _, i := range all {
		if !i.OnDemand && i.Phase == fleet.Running && i.RemovalAskedAt == nil {
			built[i.Hashes.Infra]++
		}
	}
	return built
}
