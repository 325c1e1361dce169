package fake

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// ErrLost is the error of a lost reply: the outcome is unknown to the caller.
var ErrLost = errors.New("connection lost")

// Fault is a failure of a call.
type Fault struct {
	Err     error         // the reply; nil: the call succeeds, late by Delay
	Applied bool          // the call takes effect before the reply
	Delay   time.Duration // added to the call's latency
	Hang    bool          // no reply and no effect
}

// Chance is a fault that occurs at random.
type Chance struct {
	Op          Op // empty: every kind
	Probability float64
	Fault       Fault
}

// faults decides which calls fail. Safe for concurrent use.
type faults struct {
	chances []Chance

	mu       sync.Mutex
	scripted map[Op][]Fault
	outage   error
}

// FailNext makes the next n calls of a kind fail with fault, for any caller. Several calls of
// FailNext queue up; they take precedence over chances.
func (f *faults) FailNext(op Op, n int, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.scripted[op] = append(f.scripted[op], fault)
	}
}

// Outage makes every call fail with err, without effect, until it is called with nil. Machines
// and watches continue.
func (f *faults) Outage(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outage = err
}

// Mend ends an outage and clears pending FailNext faults.
func (f *faults) Mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outage = nil
	clear(f.scripted)
}

// strike returns the fault of this call.
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

// dice is the source of the world's randomness.
type dice struct {
	seed   uint64
	counts map[drawKey]uint64
}

// drawKey identifies a sequence of draws.
type drawKey struct {
	op  Op
	ref provider.Ref
}

// draw returns the randomness of the next call of this kind for ref.
func (d *dice) draw(op Op, ref provider.Ref) *rand.Rand {
	if ref.ID != "" {
		ref.ProviderID = "" // differs between runs
	}
	key := drawKey{op: op, ref: ref}
	d.counts[key]++
	return rand.New(rand.NewPCG(d.seed, hash(string(op), string(ref.ID), ref.ProviderID)+d.counts[key]))
}

// draw draws a duration from the span.
func (s Span) draw(r *rand.Rand) time.Duration {
	if s.Max <= s.Min {
		return s.Min
	}
	return s.Min + time.Duration(r.Int64N(int64(s.Max-s.Min)+1))
}

// hash is stable across processes, unlike the runtime's.
func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, s := range parts {
		_, _ = h.Write([]byte(s)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}
