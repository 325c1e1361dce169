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

// evidence is what is known of the machines behind provider IDs.
type evidence struct {
	// told are the IDs of all instances of the group that shards report, and ours those that
	// are certainly this pool's: without an NstanceShardGroup, or with another pool's, the
	// group may not be its own.
	told map[string]bool
	ours []string
	// lost maps each ID whose instance is known to whether that is certainly gone.
	lost map[string]bool
	// all: all of the pool's shards are synced.
	all bool
}

// next returns the list of IDs that follows had. Cluster API deletes the Node of every ID that
// is removed, so an ID stays until its instance is certainly gone; or, if its instance is
// unknown, until missing reports that all shards have been synced long enough without
// reporting it: another operator may have listed an instance that our streams have not
// reported yet.
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

// evidence collects it from shards and objects.
func (r *Reconciler) evidence(s *scope) evidence {
	e := evidence{told: map[string]bool{}, lost: map[string]bool{}, all: true}
	for _, shard := range s.shardNames() {
		// Read the state first: if the stream breaks in between, nothing counts as missing.
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

// has reports whether the group on a shard is this pool's.
func (s *scope) has(shard string) bool {
	return slices.ContainsFunc(s.places, func(p place) bool { return p.shard == shard && p.ours() })
}

// shardNames returns all shards where the pool has or may have something, sorted.
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

// syncList writes spec.providerIDList if it differs. For a pool that has never been ready,
// such as a recreated or restored one, it starts from core's copy of the list.
func (r *Reconciler) syncList(ctx context.Context, s *scope) error {
	had := s.pool.Spec.ProviderIDList
	if !deref(s.pool.Status.Ready, false) {
		had = slices.Concat(had, s.owner.Spec.ProviderIDList)
	}
	key, now := client.ObjectKeyFromObject(s.pool), r.Now()
	e := r.evidence(s)
	next := e.next(had, func(id string) bool { return now.Sub(r.strangers.since(key, id, now)) >= r.Doubt })
	if !e.all {
		r.strangers.retain(key, nil) // missing instances mean nothing now; restart the wait
	} else {
		r.strangers.retain(key, next)
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

// strangers are listed IDs that no shard reports and no object names, with the time since
// when. The zero value is empty. It is safe for concurrent use.
type strangers struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[string]time.Time
}

// since returns since when an ID has been missing; now if it was not before.
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

// retain drops a pool's IDs except the given ones.
func (x *strangers) retain(pool types.NamespacedName, ids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.all[pool], func(id string, _ time.Time) bool { return !slices.Contains(ids, id) })
	if len(x.all[pool]) == 0 {
		delete(x.all, pool)
	}
}

// any reports whether a pool has IDs that may expire without an event.
func (x *strangers) any(pool types.NamespacedName) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.all[pool]) > 0
}
