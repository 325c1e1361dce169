package fake

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Throttle is a bucket of tokens from which every call of some kinds takes one. A
// call that finds none is refused with provider.ErrThrottled, and takes none. The
// bucket is full at first.
type Throttle struct {
	Ops       []Op // that share the bucket; none: every kind has its part in it
	PerSecond float64
	Burst     int // how many tokens it holds, at least 1
}

// bucket is the state of one Throttle.
type bucket struct {
	Throttle
	tokens float64
	at     time.Time // when it held so many
}

// throttles are the buckets of a world. Safe for concurrent use.
type throttles struct {
	mu      sync.Mutex
	buckets []*bucket
}

// Throttle replaces the world's buckets: those of Config.Throttles, and those of an
// earlier call. With none nothing is throttled.
func (t *throttles) Throttle(all ...Throttle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buckets = nil
	for _, one := range all {
		one.Burst = max(one.Burst, 1)
		t.buckets = append(t.buckets, &bucket{Throttle: one, tokens: float64(one.Burst), at: time.Now()})
	}
}

// refuse takes a call's token out of each bucket that it has a part in, or says why
// there is none.
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
			return fmt.Errorf("%w: more than %g calls a second to %s", provider.ErrThrottled, b.PerSecond, op)
		}
		mine = append(mine, b)
	}
	for _, b := range mine {
		b.tokens--
	}
	return nil
}
