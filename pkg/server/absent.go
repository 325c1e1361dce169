package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/ledger"
)

const (
	// absentFor is how long an instance counts as absent without another look.
	absentFor = time.Minute
	// maxAbsent bounds the memory: about a megabyte.
	maxAbsent = 1 << 13
	// absentTimeout bounds a look, which goes on for others when its caller leaves.
	absentTimeout = 10 * time.Second
)

// absent remembers whom the store has no record of, so that an agent whose
// instance was pruned, and who keeps calling, does not cost a request to the
// store each time. A certificate is given out only after its instance's record
// was written, and ids are not used twice, so who is absent stays so; the time
// limit is for a store that was restored by hand. It is safe for concurrent use.
type absent struct {
	now   func() time.Time
	looks singleflight.Group

	mu    sync.Mutex
	until map[absentee]time.Time
}

type absentee struct {
	tenant string
	id     fleet.InstanceID
}

func newAbsent(now func() time.Time) *absent {
	return &absent{now: now, until: make(map[absentee]time.Time)}
}

// look fetches a record, once for all who ask at the same time, unless it is
// known to be absent. The error of an absent one is ledger.ErrNotFound.
func (a *absent) look(ctx context.Context, tenant string, id fleet.InstanceID,
	fetch func(context.Context, string, fleet.InstanceID) (fleet.Instance, error),
) (fleet.Instance, error) {
	who := absentee{tenant, id}
	if a.knows(who) {
		return fleet.Instance{}, ledger.ErrNotFound
	}
	result := a.looks.DoChan(tenant+"/"+string(id), func() (any, error) {
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), absentTimeout)
		defer cancel()
		i, err := fetch(shared, tenant, id)
		if errors.Is(err, ledger.ErrNotFound) {
			a.remember(who)
		}
		return i, err
	})
	select {
	case r := <-result:
		i, _ := r.Val.(fleet.Instance)
		return i, r.Err
	case <-ctx.Done():
		return fleet.Instance{}, ctx.Err()
	}
}

func (a *absent) knows(who absentee) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now().Before(a.until[who])
}

// remember makes room first: for what is over, or any other.
func (a *absent) remember(who absentee) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) >= maxAbsent {
		for other, until := range a.until {
			if !now.Before(until) {
				delete(a.until, other)
			}
		}
	}
	for other := range a.until {
		if len(a.until) < maxAbsent {
			break
		}
		delete(a.until, other)
	}
	a.until[who] = now.Add(absentFor)
}
