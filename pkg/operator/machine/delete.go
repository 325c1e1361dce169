package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// askAgain is after how long a deletion is asked for once more that seems to have had no
// effect.
const askAgain = 5 * time.Minute

// verdict is what follows from the deletion of a NstanceMachine.
type verdict int

const (
	// release: nothing is left to be undone.
	release verdict = iota
	// abandon: the same, but the instance may be left, and nobody can be asked.
	abandon
	// ask: the shard is to delete the instance.
	ask
	// wait: for the shard, to finish or to answer.
	wait
)

// leaving is what a deletion is decided on.
type leaving struct {
	scope *scope
	// shards is how many the operator has; none: it has not read its configuration yet.
	shards int
	// detached: the Cluster is deleted, and its instances stay.
	detached bool
	// part is the pool's part on the shard; nil: there is none.
	part *v1beta1.NstanceShardGroup
	// asked is when this process had the shard delete the instance last; zero: never.
	asked time.Time
	now   time.Time
}

// remove undoes what was made for a NstanceMachine that is deleted.
func (r *Reconciler) remove(ctx context.Context, s *scope) outcome {
	if !controllerutil.ContainsFinalizer(s.machine, v1beta1.Finalizer) {
		return outcome{}
	}
	l := leaving{scope: s, shards: len(r.Shards.Names()), asked: r.asks.last(s.machine), now: r.Now()}
	l.detached = r.SelfHosted && (s.cluster == nil || !s.cluster.DeletionTimestamp.IsZero())
	r.byKey(s)
	if s.pooled() {
		var err error
		if l.part, err = r.part(ctx, s.machine); err != nil {
			return outcome{err: err}
		}
	}
	o := outcome{again: later}
	switch decide(l) {
	case release:
		return outcome{err: r.release(ctx, s.machine)}
	case abandon:
		r.Recorder.Eventf(s.machine, nil, "Warning", reasonNoShard, "Release",
			"shard %s is none of the operator's any more: its instance %s is left as it is", s.machine.Spec.Shard, s.machine.Spec.InstanceID)
		return outcome{err: r.release(ctx, s.machine)}
	case ask:
		o = r.ask(ctx, s)
	case wait:
		if !l.asked.IsZero() {
			o.terminating = reasonDeleteAsked // also if it could not be written down at once
		}
	}
	if err := r.show(ctx, s.machine, observe(s, o, r.Now())); err != nil {
		o.err = err
	}
	return o
}

// decide says what follows. A pool's instance that is deleted by its id is replaced, as
// Cluster API expects of a pool whose size stays the same. So it is not, when the pool
// itself is going, or has named the instance as one that leaves.
func decide(l leaving) verdict {
	s := l.scope
	spec := s.machine.Spec
	switch {
	case spec.Shard == "" || spec.InstanceID == "" && spec.IdempotencyKey == "":
		return release // nobody was ever asked
	case s.pooled() && (l.detached || l.part == nil):
		return release // whoever has the group, has the instance
	case l.shards == 0:
		return wait
	case !s.configured:
		return abandon
	case s.instance.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED || s.absent:
		return release
	case underWay(l) || !s.state.Reachable:
		return wait
	}
	return ask
}

// underWay reports whether the instance leaves without being asked for once more.
func underWay(l leaving) bool {
	s := l.scope
	return s.pooled() && partLeaves(l) || s.instance != nil && !stays(s.instance) || asked(l)
}

// partLeaves reports whether the instance goes anyhow, with its group or because it is
// named.
func partLeaves(l leaving) bool {
	m := l.scope.machine
	return !l.part.DeletionTimestamp.IsZero() || slices.Contains(l.part.Spec.Remove, m.Spec.InstanceID) ||
		l.scope.cluster != nil && !l.scope.cluster.DeletionTimestamp.IsZero()
}

// asked reports whether the shard was asked, and not too long ago. The condition tells
// it to a process that has not asked itself; its time stays when it is asked once more.
func asked(l leaving) bool {
	if !l.asked.IsZero() {
		return l.now.Sub(l.asked) < askAgain
	}
	c := meta.FindStatusCondition(l.scope.machine.Status.Conditions, v1beta1.ConditionTerminating)
	return c != nil && c.Reason == reasonDeleteAsked && l.now.Sub(c.LastTransitionTime.Time) < askAgain
}

// ask has the shard delete the instance, by the key if no id was written down.
func (r *Reconciler) ask(ctx context.Context, s *scope) outcome {
	m := s.machine
	asked, err := r.call(s, func(shard string) error {
		if m.Spec.InstanceID == "" {
			return r.Shards.DeleteInstanceByKey(ctx, shard, m.Spec.IdempotencyKey)
		}
		return r.Shards.DeleteInstance(ctx, shard, string(m.Spec.InstanceID))
	})
	switch {
	case err != nil:
		return failed(m, err)
	case !asked:
		return inLine()
	}
	r.asks.note(m, r.Now())
	return outcome{terminating: reasonDeleteAsked, again: later}
}

// byKey finds the instance of a key whose id was never written down.
func (r *Reconciler) byKey(s *scope) {
	m := s.machine
	if m.Spec.InstanceID != "" || m.Spec.IdempotencyKey == "" || !s.configured {
		return
	}
	// A tombstone says nothing: the key of an instance that failed may name another one by
	// now, of a creation that was repeated and whose outcome is unknown.
	for _, i := range r.Shards.Instances(string(m.Spec.Shard), string(m.Spec.Group)) {
		if i.GetIdempotencyKey() == m.Spec.IdempotencyKey && i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED {
			s.instance = i
			return
		}
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionTerminating)
	s.absent = s.state.Synced && c != nil && c.Reason == reasonDeleteAsked
}

// part is what a pool's instance is counted in. Without one the instance is left to others,
// so what the cache lacks is read past it.
func (r *Reconciler) part(ctx context.Context, m *v1beta1.NstanceMachine) (*v1beta1.NstanceShardGroup, error) {
	var g v1beta1.NstanceShardGroup
	key := client.ObjectKey{Namespace: m.Namespace, Name: capi.ShardGroupName(string(m.Spec.Group), string(m.Spec.Shard))}
	err := r.Client.Get(ctx, key, &g)
	if apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, key, &g)
	}
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &g, nil
}

// release lets the object go.
func (r *Reconciler) release(ctx context.Context, m *v1beta1.NstanceMachine) error {
	to := m.DeepCopy()
	controllerutil.RemoveFinalizer(to, v1beta1.Finalizer)
	err := r.write(ctx, m, to)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}
