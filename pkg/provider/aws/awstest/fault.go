package awstest

import (
	"slices"
	"time"
)

// Fault is an injected failure of a call.
type Fault struct {
	Code    string // the error code with which the call is refused, without effect; empty: it is not refused
	Message string
	Status  int
	Dropped bool          // the connection is closed, and the call has no effect
	Lost    bool          // the call takes effect, then the connection is closed
	Delay   time.Duration // before the reply
}

// Throttle is a token bucket from which every call of some actions takes one token. It is full at
// first. A call that finds it empty is refused and takes none.
type Throttle struct {
	Actions   []string // which share the bucket; none: all actions of all services
	PerSecond float64
	Burst     int // capacity of the bucket, at least 1
}

type bucket struct {
	Throttle
	tokens float64
	at     time.Time // when it held that many
}

// Call is a parsed call and its result.
type Call struct {
	Service string // as signatures name it
	Action  string
	At      time.Time
	Token   string // the client token
	Code    string // of the error; empty: none
}

// Throttle replaces all buckets; without arguments nothing is throttled.
func (c *Cloud) Throttle(all ...Throttle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buckets = nil
	for _, one := range all {
		one.Burst = max(one.Burst, 1)
		c.buckets = append(c.buckets, &bucket{Throttle: one, tokens: float64(one.Burst), at: c.cfg.Now()})
	}
}

// throttle takes a token from each bucket of the action, or returns the error of a throttled call.
// The caller holds the lock.
func (c *Cloud) throttle(s service, action string) error {
	now := c.cfg.Now()
	var mine []*bucket
	for _, b := range c.buckets {
		if len(b.Actions) > 0 && !slices.Contains(b.Actions, action) {
			continue
		}
		b.tokens = min(float64(b.Burst), b.tokens+b.PerSecond*now.Sub(b.at).Seconds())
		b.at = now
		if b.tokens < 1 {
			return s.throttled
		}
		mine = append(mine, b)
	}
	for _, b := range mine {
		b.tokens--
	}
	return nil
}

// FailNext makes the next n calls of an action fail with f, whichever client sends them. Faults of
// several calls queue up.
func (c *Cloud) FailNext(action string, n int, f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.faults[action] = append(c.faults[action], f)
	}
}

// ClearFaults removes all faults that are queued.
func (c *Cloud) ClearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.faults)
}

// nextFault removes and returns the next fault of an action. The caller holds the lock.
func (c *Cloud) nextFault(action string) Fault {
	queue := c.faults[action]
	if len(queue) == 0 {
		return Fault{}
	}
	c.faults[action] = queue[1:]
	return queue[0]
}

// Calls returns the calls of an action so far; empty: of all actions.
func (c *Cloud) Calls(action string) []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Call
	for _, call := range c.calls {
		if action == "" || call.Action == action {
			out = append(out, call)
		}
	}
	return out
}
