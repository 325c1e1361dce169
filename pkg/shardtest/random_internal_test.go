package shardtest

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestRandomByTime: what is read depends on the actor and the time, and not on what was read before,
// but differs for each reader of an instant.
func TestRandomByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := func(r *random) []byte {
			b := make([]byte, 10)
			_, _ = r.Read(b) // never fails
			return b
		}
		often, seldom, other := newRandom(1, "a"), newRandom(1, "a"), newRandom(1, "b")
		first, second := read(often), read(often)
		often.Float()
		if bytes.Equal(first, second) || bytes.Equal(first, read(other)) {
			t.Error("two reads of one instant, or of two actors, are the same")
		}
		time.Sleep(time.Second)
		if later := read(often); !bytes.Equal(later, read(seldom)) || bytes.Equal(later, first) {
			t.Error("the bytes of an instant depend on earlier reads, or not on the time")
		}
		if often.Float() != seldom.Float() {
			t.Error("the wait drawn at an instant depends on the reads of bytes")
		}
	})
}

// TestLatencyByTime: how many writes carry some bytes does not change the latency of later ones.
func TestLatencyByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1, time.Millisecond, time.Hour)
		now := n.latency(7)
		if n.latency(7) != now || n.latency(8) == now {
			t.Error("two writes of one instant have other latencies, or two ways the same")
		}
		time.Sleep(time.Second)
		if n.latency(7) == now {
			t.Error("the latency is the same at another time")
		}
	})
}
