package awsfake

import (
	"slices"
	"time"
)

// Fault is something that goes wrong with a call.
type Fault struct {
	Code    string // the call is refused with it, and has no effect; empty: it is not
	Message string
	Status  int
	Dropped bool          // the connection ends, and the call has no effect
	Lost    bool          // the call takes effect, and then the connection ends
	Delay   time.Duration // before the reply
}

// Throttle is a bucket of tokens from which every call of some actions takes one. It
// is full at first. A call that finds none is refused, and takes none.
type Throttle struct {
	Actions   []string // that share the bucket; none: all, of all services
	PerSecond float64
	Burst     int // how many tokens it holds, at least 1
}

type bucket struct {
	Throttle
	tokens float64
	at     time.Time // when it held so many
}

// Call is one that was understood, and what became of it.
type Call struct {
	Service string // as signatures have it
	Action  string
	At      time.Time
	Token   string // the client token
	Code    string // of the refusal; empty: none
}

// Throttle replaces all buckets. With none nothing is throttled.
func (c *Cloud) Throttle(all ...Throttle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buckets = nil
	for _, one := range all {
		one.Burst = max(one.Burst, 1)
		c.buckets = append(c.buckets, &bucket{Throttle: one, tokens: float64(one.Burst), at: c.cfg.Now()})
	}
}

// throttle takes a call's token out of each of its buckets, or refuses it. The caller
// holds the lock.
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

// FailNext makes the next n calls of an action meet a fault, whoever makes them.
// Several queue up.
func (c *Cloud) FailNext(action string, n int, f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.faults[action] = append(c.faults[action], f)
	}
}

// ForgetFaults has no call meet a fault any more.
func (c *Cloud) ForgetFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.faults)
}

// strike takes what strikes this call. The caller holds the lock.
func (c *Cloud) strike(action string) Fault {
	queue := c.faults[action]
	if len(queue) == 0 {
		return Fault{}
	}
	c.faults[action] = queue[1:]
	return queue[0]
}

// Calls returns the calls of an action so far; empty: those of all.
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
