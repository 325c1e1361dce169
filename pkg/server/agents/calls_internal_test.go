package agents

import (
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// TestCallsAreBounded: however many call, the latest is remembered, and maxAbsent at most are.
func TestCallsAreBounded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := newCalls(func() time.Time { return now })
	for n := range maxAbsent + 100 {
		now = now.Add(time.Second)
		id := fleet.InstanceID(fmt.Sprint(n))
		c.add(id)
		if at := c.last(id); !at.Equal(now) {
			t.Fatalf("call %d was at %s, remembered is %s", n, now, at)
		}
	}
	if n := len(c.at); n != maxAbsent {
		t.Errorf("%d are remembered, want %d", n, maxAbsent)
	}
	if at := c.last("never"); !at.IsZero() {
		t.Errorf("one that never called did at %s", at)
	}
}
