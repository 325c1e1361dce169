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

// askAgain is when a deletion request without visible effect is repeated.
const askAgain = 5 * time.Minute

// verdict is what to do for a deleted NstanceMachine.
type verdict int

const (
	// release: nothing is left to clean up.
	release verdict = iota
	// abandon: like release, but the instance may remain, and its shard is not configured.
	abandon
	// ask: tell the shard to delete the instance.
	ask
	// wait: for the shard to finish or to answer.
	wait
)

// leaving is the input of decide.
type leaving struct {
	scope *scope
	// shards is the number of configured shards; zero until the configuration was read.
	shards int
	// detached: the Cluster is being deleted, and its instances stay.
	detached bool
	// part is the pool's NstanceShardGroup on the shard; nil if there is none.
	part *v1beta1.NstanceShardGroup
	// asked is when this process last requested the deletion; zero: never.
	asked time.Time
	now   time.Time
}

// remove cleans up after a deleted NstanceMachine.
func (r *Reconciler) remove(ctx context.Context, s *scope) stepResult {
	if !controllerutil.ContainsFinalizer(s.machine, v1beta1.Finalizer) {
		return stepResult{}
	}
	l := leaving{scope: s, shards: len(r.Shards.Names()), asked: r.asks.last(s.machine), now: r.Now()}
	l.detached = r.SelfHosted && capi.Leaving(s.cluster)
	r.byKey(s)
	if s.pooled() {
		var err error
		if l.part, err = r.part(ctx, s.machine); err != nil {
			return stepResult{err: err}
		}
	}
	o, next := stepResult{again: later}, decide(l)
	if next == ask && s.pooled() {
		var err error
		if s.cluster, err = capi.Cluster(ctx, r.Reader, s.machine); err != nil {
			return stepResult{err: err}
		}
		l.detached = r.SelfHosted && capi.Leaving(s.cluster)
		next = decide(l)
	}
	switch next {
	case release:
		return stepResult{err: r.release(ctx, s.machine)}
	case abandon:
		r.Recorder.Eventf(s.machine, nil, "Warning", reasonNoShard, "Release",
			"shard %s is no longer configured: its instance %s was not deleted", s.machine.Spec.Shard, s.machine.Spec.InstanceID)
		return stepResult{err: r.release(ctx, s.machine)}
	case ask:
		o = r.requestDeletion(ctx, s)
	case wait:
		if !l.asked.IsZero() {
			o.terminating = reasonDeleteAsked // even if the status could not be written at once
		}
	}
	if err := r.show(ctx, s.machine, observe(s, o, r.Now())); err != nil {
		o.err = err
	}
	return o
}

// decide returns the verdict. A pool's instance that is deleted by its ID is replaced, as
// Cluster API expects of a pool whose size stays the same. It is not deleted that way if the
// pool itself is being deleted, or has already named the instance for removal.
func decide(l leaving) verdict {
	s := l.scope
	spec := s.machine.Spec
	switch {
	case spec.Shard == "" || spec.InstanceID == "" && spec.IdempotencyKey == "":
		return release // no instance was ever requested
	case s.pooled() && (l.detached || l.part == nil):
		return release // the instance stays with its group
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

// underWay reports whether the instance is being removed without another request.
func underWay(l leaving) bool {
	s := l.scope
	return s.pooled() && partLeaves(l) || s.instance != nil && !stays(s.instance) || deletionRequested(l)
}

// partLeaves reports whether the instance goes anyway, with its group or because it was named
// for removal.
func partLeaves(l leaving) bool {
	m := l.scope.machine
	return !l.part.DeletionTimestamp.IsZero() || slices.Contains(l.part.Spec.Remove, m.Spec.InstanceID) ||
		l.scope.cluster != nil && !l.scope.cluster.DeletionTimestamp.IsZero()
}

// deletionRequested reports whether the shard was recently told to delete the instance. The
// condition shows it to a restarted process; a repeated request does not change the
// condition's time.
func deletionRequested(l leaving) bool {
	if !l.asked.IsZero() {
		return l.now.Sub(l.asked) < askAgain
	}
	c := meta.FindStatusCondition(l.scope.machine.Status.Conditions, v1beta1.ConditionTerminating)
	return c != nil && c.Reason == reasonDeleteAsked && l.now.Sub(c.LastTransitionTime.Time) < askAgain
}

// requestDeletion tells the shard to delete the instance, by its idempotency key if that may
// name another one than the ID, or the ID was never stored.
func (r *Reconciler) requestDeletion(ctx context.Context, s *scope) stepResult {
	m := s.machine
	again, err := r.call(s, func(shard string) error {
		if s.keyed {
			return r.Shards.DeleteInstanceByKey(ctx, shard, m.Spec.IdempotencyKey)
		}
		return r.Shards.DeleteInstance(ctx, shard, string(m.Spec.InstanceID))
	})
	switch {
	case err != nil:
		return callFailed(m, err)
	case again > 0:
		return busy(again)
	}
	r.asks.note(m, r.Now())
	return stepResult{terminating: reasonDeleteAsked, again: later}
}

// byKey finds the instance of a key whose ID was never stored. If the stored one could not be
// created, the key may name another one, and must not do so later.
func (r *Reconciler) byKey(s *scope) {
	m := s.machine
	if m.Spec.InstanceID != "" && !unmade(s) || m.Spec.IdempotencyKey == "" || !s.configured {
		return
	}
	s.keyed, s.instance = true, nil
	// Tombstones are ignored: the key of a failed instance may belong to another instance by
	// now, from a repeated creation whose outcome is unknown.
	for _, i := range r.Shards.Instances(string(m.Spec.Shard), string(m.Spec.Group)) {
		if i.GetIdempotencyKey() == m.Spec.IdempotencyKey && i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED {
			s.instance = i
			return
		}
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionTerminating)
	s.absent = s.state.Synced && c != nil && c.Reason == reasonDeleteAsked
}

// part returns the NstanceShardGroup in which a pool's instance counts. Without one the
// instance is not deleted, so a cache miss is checked uncached.
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

// release removes the finalizer.
func (r *Reconciler) release(ctx context.Context, m *v1beta1.NstanceMachine) error {
	to := m.DeepCopy()
	controllerutil.RemoveFinalizer(to, v1beta1.Finalizer)
	err := r.write(ctx, m, to)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}
