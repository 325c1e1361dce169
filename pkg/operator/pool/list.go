package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// evidence is what is known of the machines behind ids.
type evidence struct {
	// told are the ids of all instances of the group that shards tell of, and ours those
	// that are this pool's beyond doubt: while a part of it is not there yet, or another
	// pool has it, the group need not be its own.
	told map[string]bool
	ours []string
	// lost says of each id whose instance is known whether that is certainly gone.
	lost map[string]bool
	// all of the pool's shards are synced: they tell everything.
	all bool
}

// next is the list of ids after one that had these. Cluster API deletes the Node of
// every id that goes missing, so one stays until its instance is certainly gone; or,
// when nobody knows which instance that was, until all shards have told everything for
// so long that they would have told of it: another operator may know of one that the
// streams here have not told yet. missing reports that they have.
func (e evidence) next(had []string, missing func(id string) bool) []string {
	ids := slices.Clone(e.ours)
	for _, id := range had {
		lost, known := e.lost[id]
		if !known {
			lost = e.all && missing(id)
		}
		if e.told[id] || !lost {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// evidence collects what shards and objects say.
func (r *Reconciler) evidence(s *scope) evidence {
	e := evidence{told: map[string]bool{}, lost: map[string]bool{}, all: true}
	for _, shard := range s.shardNames() {
		// The state first: if the streams break in between, no more is missing.
		state, _ := r.Shards.State(shard)
		e.all = e.all && state.Synced
		for _, i := range r.Shards.Instances(shard, string(s.pool.Spec.Group)) {
			if !i.GetOnDemand() && i.GetNodeProviderId() != "" {
				e.add(i, s.infra[i.GetId()] != nil || s.has(shard))
			}
		}
	}
	for _, m := range s.infra {
		if _, known := e.lost[m.Spec.ProviderID]; !known && m.Spec.ProviderID != "" && m.Spec.Shard != "" {
			e.lost[m.Spec.ProviderID] = gone(r.Shards, s, string(m.Spec.Shard), string(m.Spec.InstanceID))
		}
	}
	return e
}

func (e *evidence) add(i *nstancev1.InstanceStatus, ours bool) {
	id := i.GetNodeProviderId()
	if e.lost[id] = ended(i); ended(i) {
		return
	}
	e.told[id] = true
	if ours {
		e.ours = append(e.ours, id)
	}
}

// has: the group on a shard is this pool's.
func (s *scope) has(shard string) bool {
	return slices.ContainsFunc(s.places, func(p place) bool { return p.shard == shard && p.ours() })
}

// shardNames are all shards where something of the pool is or may be, sorted.
func (s *scope) shardNames() []string {
	names := map[string]bool{}
	for _, p := range s.places {
		names[p.shard] = true
	}
	for _, m := range s.infra {
		if m.Spec.Shard != "" {
			names[string(m.Spec.Shard)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// keepList writes spec.providerIDList when it is different. A pool that has not been
// ready yet, made anew or restored, begins with what core knew of it.
func (r *Reconciler) keepList(ctx context.Context, s *scope) error {
	had := s.pool.Spec.ProviderIDList
	if !deref(s.pool.Status.Ready, false) {
		had = slices.Concat(had, s.owner.Spec.ProviderIDList)
	}
	key, now := client.ObjectKeyFromObject(s.pool), r.Now()
	e := r.evidence(s)
	next := e.next(had, func(id string) bool { return now.Sub(r.strangers.since(key, id, now)) >= r.Doubt })
	if !e.all {
		r.strangers.keep(key, nil) // what it lacks means nothing, and the wait begins anew
	} else {
		r.strangers.keep(key, next)
	}
	if slices.Equal(next, s.pool.Spec.ProviderIDList) {
		s.listed = true
		return nil
	}
	old := s.pool.DeepCopy()
	s.pool.Spec.ProviderIDList = next
	locked := capi.Locked(old)
	if err := r.Client.Patch(ctx, s.pool, locked, capi.FieldOwner); err != nil {
		s.pool = old
		return fmt.Errorf("write spec.providerIDList: %w", err)
	}
	s.listed = true
	r.index.note(s)
	return nil
}

// strangers are ids of lists that no shard told of and no object stands for, and since
// when they were missed. The zero value is empty. It is safe for concurrent use.
type strangers struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[string]time.Time
}

// since is when an id of a pool was missed first, which is now if it was not before.
func (x *strangers) since(pool types.NamespacedName, id string, now time.Time) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, ok := x.all[pool][id]; ok {
		return at
	}
	if x.all == nil {
		x.all = map[types.NamespacedName]map[string]time.Time{}
	}
	if x.all[pool] == nil {
		x.all[pool] = map[string]time.Time{}
	}
	x.all[pool][id] = now
	return now
}

// keep forgets all of a pool but those that it has still.
func (x *strangers) keep(pool types.NamespacedName, ids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.all[pool], func(id string, _ time.Time) bool { return !slices.Contains(ids, id) })
	if len(x.all[pool]) == 0 {
		delete(x.all, pool)
	}
}

// any reports whether a pool has some that may leave by mere waiting.
func (x *strangers) any(pool types.NamespacedName) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.all[pool]) > 0
}
