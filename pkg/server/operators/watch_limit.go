package operators

import (
	"sync"

	"github.com/nstance/nstance/pkg/rpc"
)

// How many watches may be open at a time. No tenant can take the places of all
// the others.
const (
	MaxWatchesPerOperator = 16
	MaxWatchesPerTenant   = 128
	MaxWatches            = 256
)

// streams counts the open watches, per operator and per tenant.
type streams struct {
	mu      sync.Mutex
	all     int
	tenants map[string]int
	callers map[[2]string]int // by tenant and id
}

// join takes a place for a watch. leave gives it back, once.
func (s *streams) join(tenant, id string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	me := [2]string{tenant, id}
	switch {
	case s.callers[me] >= MaxWatchesPerOperator:
		return nil, rpc.Exhausted.Errorf("operator %s has %d watches open: end one of them first", id, MaxWatchesPerOperator)
	case s.tenants[tenant] >= MaxWatchesPerTenant:
		return nil, rpc.Exhausted.Errorf("tenant %s has %d watches open: end one of them first", tenant, MaxWatchesPerTenant)
	case s.all >= MaxWatches:
		return nil, rpc.Exhausted.Errorf("this server serves %d watches already: try again later", MaxWatches)
	}
	if s.callers == nil {
		s.tenants, s.callers = map[string]int{}, map[[2]string]int{}
	}
	s.all++
	s.tenants[tenant]++
	s.callers[me]++
	return func() { s.leave(me) }, nil
}

func (s *streams) leave(me [2]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.tenants[me[0]]--; s.tenants[me[0]] == 0 {
		delete(s.tenants, me[0])
	}
	if s.callers[me]--; s.callers[me] == 0 {
		delete(s.callers, me)
	}
}
