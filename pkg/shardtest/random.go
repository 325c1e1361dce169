package shardtest

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// random is a seeded source of bytes. They depend on the time and not on what was read earlier:
// which goroutine reads first at one instant differs between two runs of a seed, and must not
// change all later waits and ids. Safe for concurrent use.
type random struct {
	seed, actor uint64

	mu   sync.Mutex
	at   time.Time
	nths map[int]uint64 // the reads at that instant, by their length
}

var _ io.Reader = (*random)(nil)

func newRandom(seed uint64, actor string) *random {
	return &random{seed: seed, actor: hash(actor), nths: map[int]uint64{}}
}

// next returns the source of the next read of a length at this instant.
func (r *random) next(length int) *rand.ChaCha8 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); !now.Equal(r.at) {
		r.at = now
		clear(r.nths)
	}
	r.nths[length]++
	var key [32]byte
	for n, part := range []uint64{r.seed, r.actor, uint64(r.at.UnixNano()), uint64(length)<<32 + r.nths[length]} {
		binary.BigEndian.PutUint64(key[8*n:], part)
	}
	return rand.NewChaCha8(key)
}

// Read implements io.Reader; it never fails.
func (r *random) Read(b []byte) (int, error) { return r.next(len(b)).Read(b) }

// even is a source that is deterministic where it affects timelines: servers read eight bytes
// for the length of a wait, and their other reads don't affect timelines.
type even struct{ *random }

// Read implements io.Reader; it never fails.
func (e even) Read(b []byte) (int, error) {
	if len(b) == 8 {
		clear(b)
		b[0] = 1 << 7 // draws one half
		return len(b), nil
	}
	return e.random.Read(b)
}

// random returns the random source of a process.
func (s *Shard) random(actor string) io.Reader {
	r := newRandom(s.opts.Seed, actor)
	if !s.opts.Calm {
		return r
	}
	return even{r}
}

// chance is the source of an actor's waits.
func (s *Shard) chance(actor string) func() float64 {
	if s.opts.Calm {
		return func() float64 { return 0.5 }
	}
	return newRandom(s.opts.Seed, actor+" waits").Float
}

// Float returns a number from [0, 1).
func (r *random) Float() float64 { return float64(r.next(0).Uint64()>>11) / (1 << 53) }
