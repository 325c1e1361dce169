package leader

import (
	"sync"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/rpc"
)

// maxOnDemand is how many on-demand instances a tenant may have at a time: as many
// as a group may be large.
const maxOnDemand = config.MaxGroupSize

// tally counts the creations under way, which the ledger does not know yet. It is
// safe for concurrent use; the zero value is ready.
type tally struct {
	mu    sync.Mutex
	under map[string]int // by tenant
}

// enter begins a creation for a tenant that has so many instances already. The
// caller calls leave once when the creation has ended.
func (t *tally) enter(tenant string, have int) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have+t.under[tenant] >= maxOnDemand {
		return nil, rpc.Exhausted.Errorf("the tenant has %d on-demand instances, more are not allowed: delete some first", maxOnDemand)
	}
	if t.under == nil {
		t.under = map[string]int{}
	}
	t.under[tenant]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.under[tenant]--; t.under[tenant] == 0 {
			delete(t.under, tenant)
		}
	}, nil
}
