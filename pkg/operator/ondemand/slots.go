package ondemand

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// slot is an on-demand instance that counts towards a group's limits: created for a pod, or
// about to be.
type slot struct {
	pod          types.NamespacedName
	uid          types.UID // of the pod; empty if it was found
	group, shard string
	id, key      string // of the instance, if known
}

func slotOf(m *v1beta1.NstanceMachine) slot {
	pod, _ := podOf(m)
	return slot{
		pod: pod, group: string(m.Spec.Group), shard: string(m.Spec.Shard), id: string(m.Spec.InstanceID), key: m.Spec.IdempotencyKey,
	}
}

// slots are reservations that the cache may not show yet, by object name: otherwise pods that
// arrive at once would each see the same room. It is safe for concurrent use; the zero value
// is ready.
type slots struct {
	mu    sync.Mutex
	given map[string]slot
}

// reserve calls decide with all slots of want's group except the one under name, and reserves
// one on the chosen shard; an empty shard is none. list returns the cached objects.
func (s *slots) reserve(name string, want slot, list func() ([]v1beta1.NstanceMachine, error), decide func([]slot) string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown, err := list()
	if err != nil {
		return err
	}
	var taken []slot
	for i := range shown {
		m := &shown[i]
		delete(s.given, m.Name)
		if one := slotOf(m); m.Name != name && one.group == want.group {
			taken = append(taken, one)
		}
	}
	for other, one := range s.given {
		if other != name && one.group == want.group {
			taken = append(taken, one)
		}
	}
	want.shard = decide(taken)
	if s.given == nil {
		s.given = map[string]slot{}
	}
	if s.given[name] = want; want.shard == "" {
		delete(s.given, name)
	}
	return nil
}

// free drops the reservations for pods of a name, except that of the present pod, but.
func (s *slots) free(pod types.NamespacedName, but types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.given {
		if one.pod == pod && one.uid != but {
			delete(s.given, name)
		}
	}
}

// count returns how many on-demand instances a group has on a shard, and how many of them are
// for pods of a Namespace: those that the shard reports, and slots whose instance it does not
// report yet.
func count(shard, namespace string, instances []*nstancev1.InstanceStatus, taken []slot) (all, beside int) {
	ids, keys := map[string]bool{}, map[string]bool{}
	add := func(of string) {
		all++
		if of == namespace {
			beside++
		}
	}
	for _, one := range taken {
		if one.shard != shard {
			continue
		}
		ids[one.id], keys[one.key] = true, true
		add(one.pod.Namespace)
	}
	for _, i := range instances {
		known := ids[i.GetId()] || i.GetIdempotencyKey() != "" && keys[i.GetIdempotencyKey()]
		if i.GetOnDemand() && i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED && !known {
			add(i.GetNamespace())
		}
	}
	return all, beside
}

// find chooses the shard of a pod's instance, and reserves a slot there.
// failed is the shard that could not create it, and is chosen last; empty: none.
func (r *Reconciler) find(
	ctx context.Context, name string, want slot, a ask, by asker, failed string,
) (shard, refused string, err error) {
	list := func() ([]v1beta1.NstanceMachine, error) {
		var all v1beta1.NstanceMachineList
		err := r.Client.List(ctx, &all, client.InNamespace(r.Cluster.Namespace), client.HasLabels{LabelPodUID}, client.UnsafeDisableDeepCopy)
		return all.Items, err
	}
	err = r.slots.reserve(name, want, list, func(taken []slot) string {
		all := r.places(a, by, taken)
		for i := range all {
			all[i].failing = all[i].failing || all[i].shard == failed
		}
		shard, refused = choose(all, a, by)
		return shard
	})
	return shard, refused, err
}

// places returns all shards, with their state of a group.
func (r *Reconciler) places(a ask, by asker, taken []slot) []place {
	var all []place
	for _, name := range r.Shards.Names() {
		state, _ := r.Shards.State(name)
		silent, _ := state.Silent(r.Now())
		g := r.Shards.Group(name, a.group)
		p := place{
			shard: name, zone: state.Zone, synced: state.Synced, fresh: !state.Synced && !silent, has: g != nil,
			failing: shards.Condition(g, v1beta1.ConditionCreatesFailing) != nil,
			policy:  policyOf(g.GetOnDemand()), instanceType: g.GetInstanceType(),
		}
		p.all, p.beside = count(name, by.namespace, r.Shards.Instances(name, a.group), taken)
		all = append(all, p)
	}
	return all
}
