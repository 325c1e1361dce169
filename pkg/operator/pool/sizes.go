package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/spread"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// syncSizes sets the size of the pool's part on every shard. A cached read may show that
// something has to change, but what to change is decided on uncached reads: parts cached at
// different times could make the pool shrink twice, and the cache may show lower replicas
// before the name of a victim.
func (r *Reconciler) syncSizes(ctx context.Context, s *scope) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(s.pool)
	excess := spread.Excess(s.replicas(), s.shards())
	if excess > 0 { // the grace period starts here, before the uncached reads
		r.waits.began(key, s.replicas(), r.Now())
	}
	if excess == 0 && len(r.steps(s, nil)) == 0 {
		r.waits.end(key)
		return ctrl.Result{}, nil
	}
	s, err := r.read(ctx, r.Reader, key)
	if err != nil || !s.scalable() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	victims, wait, err := r.victims(ctx, s)
	if err != nil || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	steps := r.steps(s, victims)
	errs := make([]error, len(steps))
	var all sync.WaitGroup // shards don't wait for each other
	for i, step := range steps {
		all.Go(func() {
			if err := r.write(ctx, s, step); err != nil {
				errs[i] = fmt.Errorf("shard %s: %w", step.place.shard, err)
			}
		})
	}
	all.Wait()
	return again(ctrl.Result{}, errs...)
}

// scalable reports whether the pool has a size to follow. The finalizer ensures that no part
// outlives the pool.
func (s *scope) scalable() bool {
	return s.owner != nil && !s.paused && s.owner.DeletionTimestamp.IsZero() && s.pool.DeletionTimestamp.IsZero() &&
		slices.Contains(s.pool.Finalizers, v1beta1.Finalizer)
}

// maxReplicas is the schema's limit of list items.
const maxReplicas = 10000

// replicas defaults to 1, as in Cluster API.
func (s *scope) replicas() int { return int(min(deref(s.owner.Spec.Replicas, 1), maxReplicas)) }

// unknown reports whether it is not known yet if the shard has the group.
func (p *place) unknown() bool { return p.group == nil && p.told == nil && !p.state.Known }

// fixed reports whether the part can't be changed now.
func (p *place) fixed() bool {
	return p.foreign || (p.group != nil && !p.group.DeletionTimestamp.IsZero())
}

// size is the part's present size; for an existing group that has no part yet, the size on its
// shard.
func (p *place) size() int {
	switch {
	case p.foreign:
		return 0
	case p.group != nil:
		return int(deref(p.group.Spec.Size, 0))
	}
	return int(p.told.GetSize())
}

func (s *scope) shards() []spread.Shard {
	all := make([]spread.Shard, 0, len(s.places))
	for i := range s.places {
		p := &s.places[i]
		all = append(all, spread.Shard{Size: p.size(), Unknown: p.unknown(), Fixed: p.fixed(), Selected: p.selected})
	}
	return all
}

// missing returns how many instances of a part have not come up; zero unless the shard is
// synced. When the Cluster Autoscaler lowers the replicas by the number that did not come in
// time, it expects that these are given up, and no existing node. And while the replacement of
// an instance that is being drained has not come up, a scale-down takes that, so that it counts
// the one that is on its way out.
func (r *Reconciler) missing(s *scope, p *place) int {
	if !p.state.Synced {
		return 0
	}
	n := p.size()
	for _, i := range r.Shards.Instances(p.shard, string(s.pool.Spec.Group)) {
		up := i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
		if up && !i.GetOnDemand() && i.GetNodeProviderId() != "" {
			n--
		}
	}
	return max(n, 0)
}

// step is one write.
type step struct {
	place *place
	want  *v1beta1.NstanceShardGroup // nil: delete it
}

// steps returns the writes that bring the parts to their sizes.
func (r *Reconciler) steps(s *scope, victims []spread.Machine) []step {
	all := s.shards()
	for i := range all {
		all[i].Missing = r.missing(s, &s.places[i])
	}
	names := make([][]v1beta1.InstanceID, len(all))
	for _, v := range victims {
		all[v.Shard].Named++
		names[v.Shard] = append(names[v.Shard], v1beta1.InstanceID(v.ID))
	}
	var out []step
	for i, size := range spread.Next(s.replicas(), all) {
		p := &s.places[i]
		switch {
		case p.unknown(), p.fixed(), p.group == nil && !p.selected && size == 0:
		case p.group != nil && !p.listed && size == 0 && *p.group.Spec.Size == 0 && r.empty(s, p):
			out = append(out, step{place: p})
		default:
			if want := r.want(s, p, size, names[i]); p.group == nil || !same(p.group, want) {
				out = append(out, step{place: p, want: want})
			}
		}
	}
	return out
}

// empty reports whether nothing of the pool is left on a shard.
func (r *Reconciler) empty(s *scope, p *place) bool {
	for _, i := range r.Shards.Instances(p.shard, string(s.pool.Spec.Group)) {
		if !i.GetOnDemand() && !ended(i) {
			return false
		}
	}
	return p.state.Synced
}

// want returns the desired part. A name stays in spec.remove until its instance is gone, so
// that the shard gets it even after changes of its leader.
func (r *Reconciler) want(s *scope, p *place, size int, victims []v1beta1.InstanceID) *v1beta1.NstanceShardGroup {
	spec := &s.pool.Spec
	g := &v1beta1.NstanceShardGroup{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.pool.Namespace, Name: capi.ShardGroupName(string(spec.Group), p.shard),
	}}
	if p.group != nil {
		g = p.group.DeepCopy()
	}
	if g.Labels == nil {
		g.Labels = map[string]string{}
	}
	maps.Copy(g.Labels, map[string]string{
		v1beta1.LabelGroup: string(spec.Group), v1beta1.LabelShard: p.shard, clusterv1.ClusterNameLabel: s.owner.Spec.ClusterName,
	})
	for _, id := range g.Spec.Remove {
		if !gone(r.Shards, s, p.shard, string(id)) {
			victims = append(victims, id)
		}
	}
	slices.Sort(victims)
	g.Spec = v1beta1.NstanceShardGroupSpec{
		Group: spec.Group, Shard: v1beta1.Name(p.shard), Size: new(int32(size)), Remove: slices.Compact(victims),
		Template: spec.Template, SubnetPool: spec.SubnetPool, InstanceType: spec.InstanceType, Vars: spec.Vars, Rotation: spec.Rotation,
		OnDemand: spec.OnDemand,
	}
	// It fails only for another pool's group, for which there is no step.
	_ = controllerutil.SetControllerReference(s.pool, g, r.Client.Scheme())
	return g
}

func same(a, b *v1beta1.NstanceShardGroup) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

func (r *Reconciler) write(ctx context.Context, s *scope, do step) error {
	switch {
	case do.want == nil:
		return r.remove(ctx, do.place.group)
	case do.place.group == nil:
		err := r.Client.Create(ctx, do.want, capi.FieldOwner)
		if apierrors.IsAlreadyExists(err) { // created since the read; an event follows
			return nil
		}
		return err
	}
	ctrl.LoggerFrom(ctx).Info("change the pool's size on a shard", "shard", do.place.shard, "replicas", s.replicas(),
		"from", deref(do.place.group.Spec.Size, 0), "to", *do.want.Spec.Size, "remove", do.want.Spec.Remove)
	locked := capi.Locked(do.place.group)
	return r.Client.Patch(ctx, do.want, locked, capi.FieldOwner)
}

// remove deletes exactly the object that was read.
func (r *Reconciler) remove(ctx context.Context, o client.Object) error {
	err := r.Client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
