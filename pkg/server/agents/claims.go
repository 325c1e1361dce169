package agents

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Two machines may show one identity: an image was made of a machine that had registered,
// or its disk was restored beside it. Both keep streams open, and each takes the other's
// place. The functions here find that out and decide which one keeps its streams.
//
// A stream that arrives while another machine's is open takes its place at once: nearly
// always that one is what is left of a connection that broke, and waiting for it would
// cost time. If it was alive, its agent is told, and comes back within seconds: that is
// the proof that it answers. When both have come back so, there are two machines.

const (
	// returnWindow is how soon a machine that lost its place comes back, if it lives: its
	// agent's longest pause is 10 s.
	returnWindow = 30 * time.Second
	// sharedFor is how long a machine that was refused counts as one that still runs. Its
	// agent tries again about once a minute.
	sharedFor = 5 * time.Minute
	// maxRefused bounds how many machines are remembered for one instance.
	maxRefused = 8
)

// machine is what tells machines with one identity apart: where a stream comes from, and
// the run of the agent. Either may be the same on both: addresses behind a NAT, runs when
// the memory was copied too.
type machine struct {
	host netip.Addr // invalid: not known
	run  string     // empty: not named
}

// claims are what the machines with an instance's identity have done lately. The zero
// value is that of nearly all instances: nothing of note.
type claims struct {
	displaced map[machine]time.Time // lost their place to another machine, and when
	refused   map[machine]time.Time // proven to run beside the one that keeps the streams, and when they last tried
	byAddress bool                  // the provider's record decided who keeps them
}

// verdict is the decision on a stream that arrives.
type verdict int

const (
	admit  verdict = iota // it takes the place of whatever is there
	refuse                // another machine keeps the place
	// prefer is admit, and the machine that had the place is refused from now on.
	prefer
)

// arrive decides on a stream of comer. holder is the machine whose stream is open; nil:
// none is. known are the instance's addresses in the provider's record. fresh reports
// whether a machine is refused that was not before.
func (c *claims) arrive(comer machine, holder *machine, known []netip.Addr, now time.Time) (v verdict, fresh bool) {
	c.expire(now)
	switch {
	case holder != nil && *holder == comer:
		return admit, false
	case c.refuses(comer, holder, known):
		c.refuse(comer, now)
		return refuse, false
	case holder == nil:
		return admit, false
	case !c.bothReturned(comer, *holder):
		c.displace(*holder, now)
		return admit, false
	}
	mine, others := slices.Contains(known, comer.host), slices.Contains(known, holder.host)
	c.byAddress = mine != others
	c.displaced = nil
	if mine && !others {
		delete(c.refused, comer)
		c.refuse(*holder, now)
		return prefer, true
	}
	c.refuse(comer, now)
	return refuse, true
}

// refuses reports whether an earlier decision turns a machine away. One that the provider
// shows as the instance's by now is heard again, and without the provider's support a
// decision only protects a stream that is open.
func (c *claims) refuses(comer machine, holder *machine, known []netip.Addr) bool {
	if !c.recognises(comer, holder) {
		return false
	}
	if slices.Contains(known, comer.host) && (holder == nil || !slices.Contains(known, holder.host)) {
		return false
	}
	return holder != nil || c.byAddress
}

// recognises reports whether a machine was refused before, or is at the address of one
// that was: then its agent was started again.
func (c *claims) recognises(comer machine, holder *machine) bool {
	if _, ok := c.refused[comer]; ok {
		return true
	}
	if !comer.host.IsValid() || holder != nil && holder.host == comer.host {
		return false
	}
	for m := range c.refused {
		if m.host == comer.host {
			return c.byAddress || holder != nil
		}
	}
	return false
}

// bothReturned reports whether each of two machines has lost its place to the other, and
// come back.
func (c *claims) bothReturned(comer, holder machine) bool {
	_, comerDid := c.displaced[comer]
	_, holderDid := c.displaced[holder]
	return comerDid && holderDid
}

func (c *claims) displace(m machine, now time.Time) {
	if c.displaced == nil {
		c.displaced = map[machine]time.Time{}
	}
	makeRoom(c.displaced)
	c.displaced[m] = now
}

func (c *claims) refuse(m machine, now time.Time) {
	if c.refused == nil {
		c.refused = map[machine]time.Time{}
	}
	if _, there := c.refused[m]; !there {
		makeRoom(c.refused)
	}
	c.refused[m] = now
}

// makeRoom drops the oldest entry of a full map.
func makeRoom(at map[machine]time.Time) {
	if len(at) < maxRefused {
		return
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(at)), func(a, b machine) int { return at[a].Compare(at[b]) })
	delete(at, oldest)
}

// expire forgets what is too old to count.
func (c *claims) expire(now time.Time) {
	maps.DeleteFunc(c.displaced, func(_ machine, at time.Time) bool { return now.Sub(at) >= returnWindow })
	maps.DeleteFunc(c.refused, func(_ machine, at time.Time) bool { return now.Sub(at) >= sharedFor })
	if len(c.refused) == 0 {
		c.byAddress = false
	}
}

// shared reports whether two machines are known to have the identity.
func (c *claims) shared() bool { return len(c.refused) > 0 }

// lastRefused is when a machine was refused last; zero: none is remembered.
func (c *claims) lastRefused() (last time.Time) {
	for _, at := range c.refused {
		if at.After(last) {
			last = at
		}
	}
	return last
}
