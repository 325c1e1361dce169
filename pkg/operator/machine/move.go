package machine

import (
	"context"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// move lets the next attempt of a failed creation use another shard, if one was chosen by an
// operator and another suits better now. The key on the previous shard is given up first: it
// may name an instance from a call whose outcome is unknown.
func (r *Reconciler) move(ctx context.Context, s *scope) stepResult {
	c := s.machine.Status.Creation
	if c == nil || c.RetryTime == nil || !s.state.Reachable {
		return stepResult{}
	}
	to, err := r.elsewhere(ctx, s)
	switch {
	case err != nil:
		return stepResult{err: err}
	case to == "" || to == string(s.machine.Spec.Shard):
		return stepResult{}
	}
	again, err := r.call(s, func(shard string) error {
		return r.Shards.DeleteInstanceByKey(ctx, shard, s.machine.Spec.IdempotencyKey)
	})
	switch {
	case err != nil:
		return callFailed(s.machine, err)
	case again > 0:
		return busy(again)
	}
	return r.renew(ctx, s, v1beta1.Name(to))
}

// elsewhere returns the shard for the next attempt; empty: the same one.
func (r *Reconciler) elsewhere(ctx context.Context, s *scope) (string, error) {
	m := s.machine
	if m.Spec.PodNamespace != "" {
		return r.Pods.Place(ctx, m)
	}
	if m.Annotations[v1beta1.AnnotationShardChosen] == "" || s.owner.Spec.FailureDomain != "" {
		return "", nil
	}
	shard, _, err := r.spread(ctx, s, "", string(m.Spec.Shard))
	return shard, err
}
