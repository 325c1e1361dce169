package fake

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// ErrLost is the reply that never came: the caller learns nothing of the outcome.
var ErrLost = errors.New("connection lost")

// Fault is something that goes wrong with a call.
type Fault struct {
	Err     error         // the reply; nil: the call succeeds, late by Delay
	Applied bool          // the call took effect before its reply was lost
	Delay   time.Duration // added to the call's latency
	Hang    bool          // no reply until the caller gives up, and no effect
}

// Chance is a fault that strikes calls at random.
type Chance struct {
	Op          Op // empty: every kind
	Probability float64
	Fault       Fault
}

// faults are what goes wrong with calls. Safe for concurrent use.
type faults struct {
	chances []Chance

	mu       sync.Mutex
	scripted map[Op][]Fault
	outage   error
}

// FailNext makes the next n calls of a kind meet fault, whoever makes them.
// Several scripts queue up; they come before all chances.
func (f *faults) FailNext(op Op, n int, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.scripted[op] = append(f.scripted[op], fault)
	}
}

// Outage makes every call fail with err, without effect, until it is called
// with nil. Machines live on meanwhile, and so do watches.
func (f *faults) Outage(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outage = err
}

// Mend ends an outage, and forgets what FailNext was told and did not do yet.
func (f *faults) Mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outage = nil
	clear(f.scripted)
}

// strike picks what strikes this call.
func (f *faults) strike(op Op, draw *rand.Rand) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.outage != nil {
		return Fault{Err: f.outage}
	}
	if queue := f.scripted[op]; len(queue) > 0 {
		f.scripted[op] = queue[1:]
		return queue[0]
	}
	for _, c := range f.chances {
		if (c.Op == "" || c.Op == op) && draw.Float64() < c.Probability {
			return c.Fault
		}
	}
	return Fault{}
}

// dice are where the world's randomness comes from.
type dice struct {
	seed   uint64
	counts map[drawKey]uint64
}

// drawKey names a sequence of draws.
type drawKey struct {
	op  Op
	ref provider.Ref
}

// draw returns the randomness of the next call of this kind about ref.
func (d *dice) draw(op Op, ref provider.Ref) *rand.Rand {
	if ref.ID != "" {
		ref.ProviderID = "" // it is not the same in every run
	}
	key := drawKey{op: op, ref: ref}
	d.counts[key]++
	return rand.New(rand.NewPCG(d.seed, hash(string(op), string(ref.ID), ref.ProviderID)+d.counts[key]))
}

// draw picks a duration of the span.
func (s Span) draw(r *rand.Rand) time.Duration {
	if s.Max <= s.Min {
		return s.Min
	}
	return s.Min + time.Duration(r.Int64N(int64(s.Max-s.Min)+1))
}

// hash is the same in every process, unlike the runtime's own.
func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, s := range parts {
		_, _ = h.Write([]byte(s)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}
