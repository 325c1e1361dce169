package fake

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Throttle is a token bucket from which every call of some kinds takes a token. A call without
// a token is refused with provider.ErrThrottled. The bucket starts full.
type Throttle struct {
	Ops       []Op // kinds that share the bucket; none: all kinds
	PerSecond float64
	Burst     int // capacity, at least 1
}

// bucket is the state of one Throttle.
type bucket struct {
	Throttle
	tokens float64
	at     time.Time // time of the last update
}

// throttles are the token buckets of a world. Safe for concurrent use.
type throttles struct {
	mu      sync.Mutex
	buckets []*bucket
}

// Throttle replaces the world's buckets, also those of Config.Throttles. With none, nothing is
// throttled.
func (t *throttles) Throttle(all ...Throttle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buckets = nil
	for _, one := range all {
		one.Burst = max(one.Burst, 1)
		t.buckets = append(t.buckets, &bucket{Throttle: one, tokens: float64(one.Burst), at: time.Now()})
	}
}

// refuse takes a token from each of the call's buckets, or returns an error if one is empty.
func (t *throttles) refuse(op Op, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var mine []*bucket
	for _, b := range t.buckets {
		if len(b.Ops) > 0 && !slices.Contains(b.Ops, op) {
			continue
		}
		b.tokens = min(float64(b.Burst), b.tokens+b.PerSecond*now.Sub(b.at).Seconds())
		b.at = now
		if b.tokens < 1 {
			return fmt.Errorf("%w: more than %g calls per second to %s", provider.ErrThrottled, b.PerSecond, op)
		}
		mine = append(mine, b)
	}
	for _, b := range mine {
		b.tokens--
	}
	return nil
}
