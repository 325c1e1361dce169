package rpc

import (
	"sync"
	"time"
)

// Rate is the rate limit of a token bucket that holds Burst tokens and gains PerSecond. The
// zero value means no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

func (r Rate) limits() bool { return r.PerSecond > 0 }

// maxBuckets bounds the memory of a table: about a megabyte.
const maxBuckets = 1 << 13

// sweepInterval is the shortest pause between sweeps of a full table, so that a flood of new
// keys does not cost a sweep each.
const sweepInterval = time.Second

// buckets are token buckets by key. A full bucket is equivalent to none, so full ones are
// dropped when the table is full. If that makes no room, new keys share one bucket: an
// attacker with many keys then slows down other new keys, but can't make the table grow. Safe
// for concurrent use.
type buckets[K comparable] struct {
	rate Rate
	now  func() time.Time

	mu       sync.Mutex
	table    map[K]*bucket
	overflow bucket
	swept    time.Time
}

type bucket struct {
	tokens float64
	at     time.Time
	missed int // failed takes since the last successful one
}

func newBucket(rate Rate, now time.Time) bucket { return bucket{tokens: float64(rate.Burst), at: now} }

func newBuckets[K comparable](rate Rate, now func() time.Time) *buckets[K] {
	return &buckets[K]{rate: rate, now: now, table: make(map[K]*bucket), overflow: newBucket(rate, now())}
}

// take takes a token from key's bucket, and returns false if there is none. missed is the
// number of failed takes since the last successful one.
func (b *buckets[K]) take(key K) (missed int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(key).take(b.rate, b.now())
}

// reserve takes a token from key's bucket and returns how long to wait for it. If that is
// longer than most, it takes none and returns most.
func (b *buckets[K]) reserve(key K, most time.Duration) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(key).reserve(b.rate, b.now(), most)
}

func (b *buckets[K]) of(key K) *bucket {
	if one, ok := b.table[key]; ok {
		return one
	}
	if now := b.now(); len(b.table) >= maxBuckets && now.Sub(b.swept) >= sweepInterval {
		b.swept = now
		b.forgetFull(now)
	}
	if len(b.table) >= maxBuckets {
		return &b.overflow
	}
	one := &bucket{tokens: float64(b.rate.Burst), at: b.now()}
	b.table[key] = one
	return one
}

func (b *buckets[K]) forgetFull(now time.Time) {
	for key, one := range b.table {
		if one.fill(b.rate, now); one.tokens >= float64(b.rate.Burst) {
			b.overflow.missed += one.missed
			delete(b.table, key)
		}
	}
}

// fill adds the tokens gained since the last fill, none if the clock was set back.
func (b *bucket) fill(rate Rate, now time.Time) {
	elapsed := max(0, now.Sub(b.at))
	b.tokens = min(float64(rate.Burst), b.tokens+rate.PerSecond*elapsed.Seconds())
	b.at = now
}

func (b *bucket) take(rate Rate, now time.Time) (missed int, ok bool) {
	b.fill(rate, now)
	if b.tokens < 1 {
		b.missed++
		return 0, false
	}
	b.tokens--
	missed, b.missed = b.missed, 0
	return missed, true
}

func (b *bucket) reserve(rate Rate, now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	b.fill(rate, now)
	missing := max(0, 1-b.tokens) / rate.PerSecond
	if missing > most.Seconds() {
		return most, false
	}
	b.tokens--
	return time.Duration(missing * float64(time.Second)), true
}
