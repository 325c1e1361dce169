package registry

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

// operatorLists caches the records of operators by tenant, so that repeated listings of a tenant
// cost the store little. Safe for concurrent use.
type operatorLists struct {
	// list lists the records of a tenant's operators.
	list func(ctx context.Context, tenant string) ([]object.Info, error)
	now  func() time.Time

	mu      sync.Mutex
	tenants map[string]*operatorList
}

// operatorList is the cache of one tenant. All fields but turn are guarded by turn.
type operatorList struct {
	turn  chan struct{}
	began time.Time // start of the last successful listing
	infos []object.Info
	is    map[string]object.ETag  // of infos, by key
	read  map[string]readOperator // by key
}

// readOperator is an operator as read from these versions of its record and tombstone.
type readOperator struct {
	etag, tombstone object.ETag // tombstone is empty if there is none
	fleet.Operator
}

// listPause is the minimum interval between listings of a tenant's operators. Calls in between
// share the next listing, so each sees the state at or after its call.
const listPause = 200 * time.Millisecond

// of lists a tenant's operators as of the call or later. If the error is nil, the caller holds
// the list's turn until it calls leave.
func (l *operatorLists) of(ctx context.Context, tenant string) (list *operatorList, leave func(), err error) {
	asked := l.now()
	list = l.tenant(tenant)
	select {
	case list.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	leave = func() { <-list.turn }
	if list.began.After(asked) {
		return list, leave, nil
	}
	if pause := list.began.Add(listPause).Sub(l.now()); pause > 0 {
		if err := retry.Wait(ctx, pause); err != nil {
			leave()
			return nil, nil, err
		}
	}
	began := l.now()
	infos, err := l.list(ctx, tenant)
	if err != nil {
		leave()
		return nil, nil, err
	}
	list.began, list.infos = began, infos
	list.prune()
	return list, leave, nil
}

func (l *operatorLists) tenant(name string) *operatorList {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenants == nil {
		l.tenants = map[string]*operatorList{}
	}
	if l.tenants[name] == nil {
		l.tenants[name] = &operatorList{turn: make(chan struct{}, 1), read: map[string]readOperator{}}
	}
	return l.tenants[name]
}

// tombstone returns the listed version of an operator's tombstone; empty if none is listed.
func (l *operatorList) tombstone(o fleet.Operator) object.ETag {
	return l.is[fleet.OperatorTombstoneKey(o.Tenant, o.ID)]
}

// prune drops entries whose versions are no longer listed.
func (l *operatorList) prune() {
	l.is = make(map[string]object.ETag, len(l.infos))
	for _, i := range l.infos {
		l.is[i.Key] = i.ETag
	}
	maps.DeleteFunc(l.read, func(key string, r readOperator) bool {
		etag, ok := l.is[key]
		return !ok || etag != r.etag || l.tombstone(r.Operator) != r.tombstone
	})
}
