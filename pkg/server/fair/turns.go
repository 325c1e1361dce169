package fair

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// turns holds the waiting creates of each group, and the order in which groups and tenants take
// turns.
type turns[T Create] struct {
	waiting map[fleet.GroupKey][]T
	tenants []tenantTurns // round robin, next first
}

// tenantTurns are the groups in waiting of one tenant, round robin, next first.
type tenantTurns struct {
	tenant string
	groups []fleet.GroupKey
}

func newTurns[T Create]() turns[T] { return turns[T]{waiting: map[fleet.GroupKey][]T{}} }

// set replaces a group's creates. Immediate ones come first and probes last, so that a probe
// that has to wait blocks no other create of its group.
func (q *turns[T]) set(key fleet.GroupKey, creates []T) {
	if len(creates) == 0 {
		q.drop(key)
		return
	}
	if _, ok := q.waiting[key]; !ok {
		n := q.tenant(key)
		if n < 0 {
			n, q.tenants = len(q.tenants), append(q.tenants, tenantTurns{tenant: key.Tenant})
		}
		q.tenants[n].groups = append(q.tenants[n].groups, key)
	}
	slices.SortStableFunc(creates, func(a, b T) int { return a.Turn().rank() - b.Turn().rank() })
	q.waiting[key] = creates
}

func (q *turns[T]) drop(key fleet.GroupKey) {
	if _, ok := q.waiting[key]; !ok {
		return
	}
	delete(q.waiting, key)
	n := q.tenant(key)
	q.tenants[n].groups = slices.DeleteFunc(q.tenants[n].groups, func(k fleet.GroupKey) bool { return k == key })
	if len(q.tenants[n].groups) == 0 {
		q.tenants = slices.Delete(q.tenants, n, n+1)
	}
}

// tenant returns the index in tenants of a group's tenant; negative if there is none.
func (q *turns[T]) tenant(key fleet.GroupKey) int {
	return slices.IndexFunc(q.tenants, func(t tenantTurns) bool { return t.tenant == key.Tenant })
}

// next returns the group with the next create that may begin. Tenants take turns, those below
// their share of the slots first. Within a tenant, immediate creates come first, then groups
// take turns. So neither a large group delays a small one, nor a tenant with many groups,
// many losses or slow creates another tenant.
func (q *turns[T]) next(may func(Turn) bool, hasShare func(tenant string) bool) (key fleet.GroupKey, ok bool) {
	for _, rest := range []bool{false, true} {
		for _, t := range q.tenants {
			if hasShare(t.tenant) != rest {
				continue
			}
			if key, ok = q.nextOf(t, may); ok {
				return key, true
			}
		}
	}
	return fleet.GroupKey{}, false
}

// nextOf is next for one tenant.
func (q *turns[T]) nextOf(t tenantTurns, may func(Turn) bool) (key fleet.GroupKey, ok bool) {
	for _, wanted := range []func(Turn) bool{func(x Turn) bool { return x.Immediate }, may} {
		if n := slices.IndexFunc(t.groups, func(k fleet.GroupKey) bool { return wanted(q.waiting[k][0].Turn()) }); n >= 0 {
			return t.groups[n], true
		}
	}
	return fleet.GroupKey{}, false
}

// share returns how many slots each tenant with waiting or active creates gets at least.
func (q *turns[T]) share(slots int, active map[string]int) int {
	tenants := len(active)
	for _, t := range q.tenants {
		if active[t.tenant] == 0 {
			tenants++
		}
	}
	return max(1, slots/max(1, tenants))
}

// pop removes and returns the next create of a group. The group moves to the end of its
// tenant's turns, and the tenant to the end of all turns.
func (q *turns[T]) pop(key fleet.GroupKey) T {
	x, rest := q.waiting[key][0], q.waiting[key][1:]
	q.drop(key)
	q.set(key, rest)
	if n := q.tenant(key); n >= 0 {
		t := q.tenants[n]
		q.tenants = append(slices.Delete(q.tenants, n, n+1), t)
	}
	return x
}
