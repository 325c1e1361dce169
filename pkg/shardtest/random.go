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

// Float is from [0, 1).
func (r *random) Float() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(r.src.Uint64()>>11) / (1 << 53)
}
