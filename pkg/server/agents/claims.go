package agents

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Two machines may present the same identity: an image was taken of a registered machine, or
// its disk was restored on a second one. Both keep streams open, and each displaces the other.
// The functions here detect that and decide which machine keeps its streams.
//
// A new stream displaces another machine's open stream at once: the old one is almost always
// left over from a broken connection, and waiting for it to time out would cost time. If the
// displaced machine was alive, its agent is told and reconnects within seconds, which proves
// that it is running. When both machines have come back this way, there are two.

const (
	// returnWindow is how soon a displaced machine reconnects if it is alive: its agent's
	// longest back-off is 10 s.
	returnWindow = 30 * time.Second
	// sharedFor is how long a refused machine counts as still running. Its agent retries about
	// once a minute.
	sharedFor = 5 * time.Minute
	// maxRefused bounds how many machines are remembered for one instance.
	maxRefused = 8
)

// machine tells machines with the same identity apart, by the address that a stream comes from
// and the agent's run ID. Either may be equal: addresses behind a NAT, run IDs when memory was
// copied too.
type machine struct {
	host netip.Addr // invalid if unknown
	run  string     // empty if not sent
}

// claims records what the machines with an instance's identity did recently. The zero value is
// that of nearly all instances.
type claims struct {
	displaced map[machine]time.Time // machines that lost their place to another machine, and when
	refused   map[machine]time.Time // machines proven to run beside the one that keeps the streams, and their last attempt
	byAddress bool                  // the provider's addresses decided which machine keeps the streams
}

// verdict is the decision on a new stream.
type verdict int

const (
	admit  verdict = iota // it replaces the open stream, if any
	refuse                // another machine keeps its streams
	// prefer is admit, and refuses the previous holder from now on.
	prefer
)

// arrive decides on a new stream of comer. holder is the machine whose stream is open, or nil.
// known are the instance's addresses according to the provider. fresh reports whether a
// machine is refused that was not refused before.
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

// refuses reports whether an earlier decision still refuses a machine. The decision is
// reopened if the provider now lists the machine's address, and one made without the
// provider's addresses only protects a stream that is open.
func (c *claims) refuses(comer machine, holder *machine, known []netip.Addr) bool {
	if !c.recognises(comer, holder) {
		return false
	}
	if slices.Contains(known, comer.host) && (holder == nil || !slices.Contains(known, holder.host)) {
		return false
	}
	return holder != nil || c.byAddress
}

// recognises reports whether a machine was refused before, or has the address of a refused
// one: its agent was restarted.
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

// bothReturned reports whether each of the two machines has displaced the other and
// reconnected.
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

// expire drops expired entries.
func (c *claims) expire(now time.Time) {
	maps.DeleteFunc(c.displaced, func(_ machine, at time.Time) bool { return now.Sub(at) >= returnWindow })
	maps.DeleteFunc(c.refused, func(_ machine, at time.Time) bool { return now.Sub(at) >= sharedFor })
	if len(c.refused) == 0 {
		c.byAddress = false
	}
}

// shared reports whether two machines are known to use the identity.
func (c *claims) shared() bool { return len(c.refused) > 0 }

// lastRefused returns when a machine was last refused, or zero.
func (c *claims) lastRefused() (last time.Time) {
	for _, at := range c.refused {
		if at.After(last) {
			last = at
		}
	}
	return last
}
