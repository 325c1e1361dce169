package drain

import "sync"

// acksAtOnce is how many drains are acknowledged to one shard at the same time, so that
// one that takes its time leaves most workers to the others.
const acksAtOnce = 4

// places are those for calls that are under way, by shard. The zero value has all free.
// It is safe for concurrent use.
type places struct {
	mu    sync.Mutex
	taken map[string]int
}

// take takes a place, which is to be given back; false: there is none.
func (p *places) take(shard string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[shard] == acksAtOnce {
		return false
	}
	if p.taken == nil {
		p.taken = map[string]int{}
	}
	p.taken[shard]++
	return true
}

func (p *places) free(shard string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[shard]--; p.taken[shard] == 0 {
		delete(p.taken, shard)
	}
}
