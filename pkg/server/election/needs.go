package election

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Need is something a leader needs to do its work.
type Need int

// The needs of a leader. The zero value is none.
const (
	NeedNothing  Need = iota
	NeedFence         // a renewal within the fence window
	NeedList          // the provider's list of VMs, page by page
	NeedRead          // objects of the store
	NeedTakeover      // everything before the first decision of a term, including the other needs
	needsEnd
)

// String says what fails.
func (n Need) String() string {
	return [...]string{
		"nothing is missing", "renewals miss the fence window", "VM listings fail",
		"object storage reads fail", "the takeover fails",
	}[n]
}

// Lack is an unmet need, and for how long it has been unmet.
type Lack struct {
	Need Need
	For  time.Duration
}

// Needs records a leader's attempts to meet its needs, to distinguish a leader whose attempts
// fail from one that has nothing to do. A need without attempts is not missing. Safe for
// concurrent use.
type Needs struct {
	clock Clock

	mu   sync.Mutex
	term uint64 // attempts of earlier terms are ignored
	of   [needsEnd]need
}

// NewNeeds returns empty Needs. A nil clock means SystemClock.
func NewNeeds(clock Clock) *Needs {
	if clock == nil {
		clock = SystemClock()
	}
	return &Needs{clock: clock}
}

// Attempt is one attempt to meet a need. Safe for concurrent use; End is called once.
type Attempt struct {
	needs *Needs
	need  Need
	term  uint64
}

// Start records the start of an attempt.
func (n *Needs) Start(what Need) *Attempt {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[what].start(n.clock.Now().Mono)
	return &Attempt{needs: n, need: what, term: n.term}
}

// Progress records partial success.
func (a *Attempt) Progress() { a.note((*need).progress) }

// End records the result of the attempt: nil means success. Cancellation and the end of the term
// say nothing; any other error is a failure.
func (a *Attempt) End(err error) {
	a.note(func(n *need, now time.Duration) {
		n.open--
		switch {
		case err == nil:
			n.progress(now)
		case errors.Is(err, context.Canceled), errors.Is(err, ErrNotLeader):
		default:
			n.failed, n.until = true, now
		}
	})
}

func (a *Attempt) note(do func(*need, time.Duration)) {
	n := a.needs
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.term == n.term {
		do(&n.of[a.need], n.clock.Now().Mono)
	}
}

// met records that a need was met without an attempt.
func (n *Needs) met(what Need) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[what].progress(n.clock.Now().Mono)
}

// reset starts the records of another term.
func (n *Needs) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.term++
	n.of = [needsEnd]need{}
}

// longest returns the need that has been unmet for longest. A takeover fails because of another
// need, which is more specific: if that was unmet for at least half as long, it is returned
// instead.
func (n *Needs) longest() (worst Lack) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.Now().Mono
	for what := range n.of[:NeedTakeover] {
		if d := n.of[what].unmet(now); d > worst.For {
			worst = Lack{Need: Need(what), For: d}
		}
	}
	if d := n.of[NeedTakeover].unmet(now); d > worst.For {
		if worst.For < d/2 {
			worst.Need = NeedTakeover
		}
		worst.For = d
	}
	return worst
}

// forgetAfter is the interval between two failures after which they are unrelated. It exceeds
// the longest pause between two attempts of a term.
const forgetAfter = 6 * time.Minute

// need is the record of one need, in monotonic time.
type need struct {
	open   int           // attempts in progress
	failed bool          // an attempt failed since the last success
	from   time.Duration // start of the time without success
	until  time.Duration // time of the last failure
}

func (n *need) start(now time.Duration) {
	if n.open == 0 && (!n.failed || now-n.until > forgetAfter) {
		n.failed, n.from = false, now
	}
	n.open++
}

func (n *need) progress(now time.Duration) { n.failed, n.from = false, now }

// unmet returns for how long attempts have failed. Without further attempts it ends at the last
// failure, so that a single failure does not count for long.
func (n *need) unmet(now time.Duration) time.Duration {
	switch {
	case n.open > 0:
		return now - n.from
	case n.failed:
		return n.until - n.from
	default:
		return 0
	}
}
