package shards

import (
	"sync"
	"time"
)

const (
	// soonest is the shortest wait for a place.
	soonest = 10 * time.Millisecond
	// pace is the time between two requests that come back for a place at the same shard: a
	// thousand that wait are spread over two seconds.
	pace = 2 * time.Millisecond
)

// Limiter limits a controller's concurrent calls per shard, so that a slow shard leaves most
// workers to the others. The zero value is ready. It is safe for concurrent use.
type Limiter struct {
	mu     sync.Mutex
	shards map[string]*places
}

// places are the calls of a shard.
type places struct {
	running int
	next    time.Time // when the next request may come back for a place
}

// Try makes a call, unless limit calls to the shard are running. If it was not made, again is
// when to try again: a worker that waited would be missing for other shards.
func (l *Limiter) Try(shard string, limit int, call func() error) (again time.Duration, err error) {
	if again = l.begin(shard, limit, time.Now()); again > 0 {
		return again, nil
	}
	defer l.end(shard)
	return 0, call()
}

// begin takes a place. If there is none, the requests get a time one after another: if all came
// back at once, few would find a place, and the others' passes would be for nothing.
func (l *Limiter) begin(shard string, limit int, now time.Time) (again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shards == nil {
		l.shards = map[string]*places{}
	}
	p := l.shards[shard]
	if p == nil {
		p = &places{}
		l.shards[shard] = p
	}
	if p.running < limit {
		p.running++
		return 0
	}
	if p.next = p.next.Add(pace); p.next.Before(now.Add(soonest)) {
		p.next = now.Add(soonest)
	}
	return p.next.Sub(now)
}

func (l *Limiter) end(shard string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shards[shard].running--
}
