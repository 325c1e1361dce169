package leader

import (
	"testing"
	"time"
)

// TestNonceLife: a create that is repeated soon has the same nonce, and however late one is, its
// nonce outlives the registration timeout.
func TestNonceLife(t *testing.T) {
	const timeout = 5 * time.Minute
	created := time.Unix(1_900_000_000, 7)
	first, _ := nonceLife(created, created, timeout)
	for _, after := range []time.Duration{0, time.Nanosecond, time.Minute, timeout - 1, timeout, timeout + 1, 17 * timeout, 1000 * time.Hour} {
		now := created.Add(after)
		issued, expires := nonceLife(created, now, timeout)
		if same := issued.Equal(first); same != (after < timeout) {
			t.Errorf("after %v: the same nonce is %v", after, same)
		}
		if issued.After(now) || expires.Sub(now) < timeout || expires.Sub(now) > 2*timeout {
			t.Errorf("after %v: good from %v before to %v after, want one to two timeouts", after, now.Sub(issued), expires.Sub(now))
		}
	}
	for name, created := range map[string]time.Time{"ahead": created.Add(time.Hour), "none": {}} {
		if issued, expires := nonceLife(created, first, timeout); !issued.Equal(first) || expires.Sub(first) != 2*timeout {
			t.Errorf("%s: good from %v to %v, want from %v", name, issued, expires, first)
		}
	}
}
