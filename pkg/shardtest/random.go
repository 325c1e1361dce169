package shardtest

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"sync"
)

// random is a source of bytes that a seed decides. Safe for concurrent use, but
// what each of several readers gets then depends on who comes first: every actor
// has one of its own.
type random struct {
	mu  sync.Mutex
	src *rand.ChaCha8
}

var _ io.Reader = (*random)(nil)

func newRandom(seed uint64, actor string) *random {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	binary.BigEndian.PutUint64(key[8:], hash(actor))
	return &random{src: rand.NewChaCha8(key)}
}

// Read implements io.Reader; it never fails.
func (r *random) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.src.Read(b)
}

// even is randomness in which nothing is left to chance where it would show:
// servers draw eight bytes for the length of a wait, and what else they draw is
// nobody's business but theirs.
type even struct{ *random }

// Read implements io.Reader; it never fails.
func (e even) Read(b []byte) (int, error) {
	if len(b) == 8 {
		clear(b)
		b[0] = 1 << 7 // a half, of those that are drawn
		return len(b), nil
	}
	return e.random.Read(b)
}

// random is what a process draws from.
func (s *Shard) random(actor string) io.Reader {
	r := newRandom(s.opts.Seed, actor)
	if !s.opts.Calm {
		return r
	}
	return even{r}
}

// chance is what an actor draws its waits from.
func (s *Shard) chance(actor string) func() float64 {
	if s.opts.Calm {
		return func() float64 { return 0.5 }
	}
	return newRandom(s.opts.Seed, actor+" waits").Float
}

// Float is from [0, 1).
func (r *random) Float() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(r.src.Uint64()>>11) / (1 << 53)
}
