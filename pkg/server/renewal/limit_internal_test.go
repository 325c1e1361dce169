package renewal

import (
	"fmt"
	"testing"
	"time"
)

// TestLimiterForgets: a caller whose last renewal is two windows ago is not remembered.
func TestLimiterForgets(t *testing.T) {
	l, now := newLimiter(time.Hour), time.Unix(1e9, 0)
	for n := range 10_000 {
		if now = now.Add(time.Second); !l.allows(fmt.Sprint(n), now) {
			t.Fatal("the first renewal is refused")
		}
	}
	if n := len(l.spent); n > 2*int(l.window/time.Second) {
		t.Errorf("%d are remembered", n)
	}
	l.allows("last", now.Add(2*l.window))
	if n := len(l.spent); n != 1 {
		t.Errorf("%d are remembered, want the last one", n)
	}
}
