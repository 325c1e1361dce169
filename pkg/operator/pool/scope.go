package pool

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// scope is a pool as one pass sees it.
type scope struct {
	pool   *v1beta1.NstanceMachinePool
	owner  *clusterv1.MachinePool // nil: the pool has no owner yet
	paused bool
	// places are spec.shards in order, then other shards that still have a part.
	places []place
	// infra are the NstanceMachines of the pool's instances, by name.
	infra map[string]*v1beta1.NstanceMachine
	// onDemand are the provider IDs of pods' machines of the group.
	onDemand []string
	// listed: spec.providerIDList is up to date.
	listed bool
	// again is the requeue delay.
	again ctrl.Result
}

// place is a shard and the pool's part on it, if any.
type place struct {
	shard    string
	listed   bool // in spec.shards
	selected bool // listed, and not excluded by failure domains
	state    shards.State
	silent   bool                       // unreachable for a while
	group    *v1beta1.NstanceShardGroup // nil if there is none
	foreign  bool                       // the NstanceShardGroup is another pool's
	told     *nstancev1.GroupStatus     // nil: the shard reports none
}

// ours reports whether the group on the shard is this pool's.
func (p *place) ours() bool { return p.group != nil && !p.foreign }

// read reads parts and sizes through from, and everything else from the cache.
func (r *Reconciler) read(ctx context.Context, from client.Reader, key client.ObjectKey) (*scope, error) {
	s := &scope{pool: &v1beta1.NstanceMachinePool{}}
	if err := from.Get(ctx, key, s.pool); err != nil {
		return nil, err
	}
	var err error
	if s.owner, err = capi.OwnerMachinePool(ctx, from, s.pool); err != nil {
		return nil, fmt.Errorf("read the MachinePool: %w", err)
	}
	labelled := metav1.Object(s.pool)
	if labelled.GetLabels()[clusterv1.ClusterNameLabel] == "" && s.owner != nil {
		labelled = s.owner
	}
	cluster, err := capi.Cluster(ctx, r.Client, labelled)
	if err != nil {
		return nil, fmt.Errorf("read the Cluster: %w", err)
	}
	s.paused = capi.Paused(cluster, s.pool)
	if s.infra, err = r.infraMachines(ctx, r.Client, s); err != nil {
		return nil, err
	}
	if s.onDemand, err = onDemandIDs(ctx, r.Client, s.pool); err != nil {
		return nil, err
	}
	return s, r.readPlaces(ctx, from, s)
}

func (r *Reconciler) readPlaces(ctx context.Context, from client.Reader, s *scope) error {
	group := string(s.pool.Spec.Group)
	var all v1beta1.NstanceShardGroupList
	if err := from.List(ctx, &all, client.InNamespace(s.pool.Namespace), client.MatchingLabels{v1beta1.LabelGroup: group}); err != nil {
		return fmt.Errorf("list the group's shards: %w", err)
	}
	for _, shard := range s.pool.Spec.Shards {
		g, err := part(ctx, from, all.Items, client.ObjectKey{Namespace: s.pool.Namespace, Name: capi.ShardGroupName(group, string(shard))})
		if err != nil {
			return fmt.Errorf("read the group on shard %s: %w", shard, err)
		}
		s.places = append(s.places, place{shard: string(shard), listed: true, group: g})
	}
	slices.SortFunc(all.Items, func(a, b v1beta1.NstanceShardGroup) int { return strings.Compare(a.Name, b.Name) })
	for i := range all.Items {
		g := &all.Items[i]
		if !slices.Contains(s.pool.Spec.Shards, g.Spec.Shard) && metav1.IsControlledBy(g, s.pool) {
			s.places = append(s.places, place{shard: string(g.Spec.Shard), group: g})
		}
	}
	for i := range s.places {
		r.readShard(s, &s.places[i])
	}
	return nil
}

// part returns the NstanceShardGroup of a name, if there is one: from the list, or else read
// by name, since its label may have been removed.
func part(
	ctx context.Context, from client.Reader, all []v1beta1.NstanceShardGroup, key client.ObjectKey,
) (*v1beta1.NstanceShardGroup, error) {
	if n := slices.IndexFunc(all, func(g v1beta1.NstanceShardGroup) bool { return g.Name == key.Name }); n >= 0 {
		return all[n].DeepCopy(), nil // the list may be shared with the cache
	}
	g := &v1beta1.NstanceShardGroup{}
	if err := from.Get(ctx, key, g); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return g, nil
}

// readShard adds the shard's state.
func (r *Reconciler) readShard(s *scope, p *place) {
	p.selected = p.listed && (s.owner == nil || len(s.owner.Spec.FailureDomains) == 0 ||
		slices.Contains(s.owner.Spec.FailureDomains, p.shard))
	var configured bool
	var left time.Duration
	p.state, configured = r.Shards.State(p.shard)
	p.silent, left = p.state.Silent(r.Now())
	p.silent = p.silent || !configured
	if left > 0 {
		s.again = sooner(s.again, ctrl.Result{RequeueAfter: left}) // to report an unreachable shard
	}
	p.told = r.Shards.Group(p.shard, string(s.pool.Spec.Group))
	if p.group != nil {
		by := metav1.GetControllerOf(p.group)
		p.foreign = by != nil && by.UID != s.pool.UID
	}
}

// labels returns the labels by which Cluster API's core finds the objects of a pool's
// machines.
func labels(owner *clusterv1.MachinePool) map[string]string {
	return map[string]string{
		clusterv1.ClusterNameLabel:     owner.Spec.ClusterName,
		clusterv1.MachinePoolNameLabel: labelValue(owner.Name),
	}
}

// labelValue returns a name as core writes it into a label: itself, or its hash if it is no
// valid label value.
func labelValue(name string) string {
	if len(validation.IsValidLabelValue(name)) == 0 {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	return "hash_" + base64.RawURLEncoding.EncodeToString(h.Sum(nil)) + "_z"
}

// deref returns *p, or the default if p is nil.
func deref[T any](p *T, or T) T {
	if p == nil {
		return or
	}
	return *p
}
