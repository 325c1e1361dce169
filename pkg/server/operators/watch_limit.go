package operators

import (
	"sync"

	"github.com/nstance/nstance/pkg/rpc"
)

// Limits on open watches. One tenant can't use up all of them.
const (
	MaxWatchesPerOperator = 16
	MaxWatchesPerTenant   = 128
	MaxWatches            = 256
)

// streams counts the open watches: of an operator, keyed by tenant and ID; of its tenant,
// without an ID; and in total, without either.
type streams struct {
	mu   sync.Mutex
	open map[[2]string]int
}

// join counts a watch. leave must be called once.
func (s *streams) join(tenant, id string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := [][2]string{{tenant, id}, {tenant}, {}}
	switch {
	case s.open[places[0]] >= MaxWatchesPerOperator:
		return nil, rpc.Exhausted.Errorf("operator %s has %d watches open: close one of them first", id, MaxWatchesPerOperator)
	case s.open[places[1]] >= MaxWatchesPerTenant:
		return nil, rpc.Exhausted.Errorf("tenant %s has %d watches open: close one of them first", tenant, MaxWatchesPerTenant)
	case s.open[places[2]] >= MaxWatches:
		return nil, rpc.Exhausted.Errorf("this server has %d watches open: try again later", MaxWatches)
	}
	if s.open == nil {
		s.open = map[[2]string]int{}
	}
	for _, p := range places {
		s.open[p]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range places {
			if s.open[p]--; s.open[p] == 0 {
				delete(s.open, p)
			}
		}
	}, nil
}
