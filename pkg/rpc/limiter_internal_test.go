package rpc

import (
	"fmt"
	"net"
	"testing"
	"time"
)

func from(i int) net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255))}
}

// TestLimiterMemoryIsBounded is an internal test, since the bound is not visible from outside.
func TestLimiterMemoryIsBounded(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLimiter(Rate{PerSecond: 1, Burst: 2}, func() time.Time { return now })
	for i := range 3 * maxBuckets {
		_ = l.allow(from(i))
		if len(l.sources.table) > maxBuckets {
			t.Fatalf("%d sources are remembered, want at most %d", len(l.sources.table), maxBuckets)
		}
	}
	if l.allow(from(4*maxBuckets)) == nil {
		t.Error("newcomers beyond the table are not limited")
	}
	if l.allow(from(0)) != nil {
		t.Error("a remembered source lost its tokens to newcomers")
	}
	now = now.Add(time.Minute)
	if err := l.allow(from(5 * maxBuckets)); err != nil {
		t.Errorf("after a minute's calm a newcomer is still refused: %v", err)
	}
	if len(l.sources.table) != 1 {
		t.Errorf("%d sources are remembered after a minute's calm, want the newcomer alone", len(l.sources.table))
	}
}
