package election

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Need is something without which a leader can't do its work.
type Need int

// The needs of a leader. The zero value is none.
const (
	NeedNothing  Need = iota
	NeedFence         // a renewal that is back soon enough for an act
	NeedList          // the provider's list of VMs, page by page
	NeedRead          // objects of the store
	NeedTakeover      // all that comes before the first decision of a term, the others among it
	needsEnd
)

// String says what is missing.
func (n Need) String() string {
	return [...]string{
		"nothing is missing", "no renewal comes back within the fence window", "the provider lists no VMs",
		"object storage gives no object", "the takeover does not succeed",
	}[n]
}

// Lack is a need that attempts have not met, and for how long they have not.
type Lack struct {
	Need Need
	For  time.Duration
}

// Needs keeps account of what a leader tried to get and got, so that one that
// gets nothing can be told from one that has nothing to do. Only attempts count:
// what nobody asks for is not missing. Its methods are safe for concurrent use.
type Needs struct {
	clock Clock

	mu   sync.Mutex
	term uint64 // attempts of an earlier one say nothing about this
	of   [needsEnd]need
}

// NewNeeds returns an account without entries. A nil clock means SystemClock.
func NewNeeds(clock Clock) *Needs {
	if clock == nil {
		clock = SystemClock()
	}
	return &Needs{clock: clock}
}

// Attempt is one try to meet a need. Its methods are safe for concurrent use; End
// is called once.
type Attempt struct {
	needs *Needs
	need  Need
	term  uint64
}

// Begin notes that something is tried.
func (n *Needs) Begin(what Need) *Attempt {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[what].begin(n.clock.Now().Mono)
	return &Attempt{needs: n, need: what, term: n.term}
}

// Progress notes that a part came, however slowly.
func (a *Attempt) Progress() { a.note((*need).progress) }

// End notes how the try ended. Nil: the need was met. One that was called off,
// and one whose term ended, says nothing; any other error says that it failed.
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

// met notes that a need was met without a try.
func (n *Needs) met(what Need) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[what].progress(n.clock.Now().Mono)
}

// reset begins the account of another term.
func (n *Needs) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.term++
	n.of = [needsEnd]need{}
}

// longest is for how long any need was unmet, and the need that was unmet for
// longest. A takeover fails for want of something else, which says more: where that
// was unmet for half the time or longer, it is what is named.
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

// forgetAfter is how far apart two failures are that say nothing about the time
// in between. It is above the longest pause between two tries of a term.
const forgetAfter = 6 * time.Minute

// need is the account of one need, in times of the monotonic clock.
type need struct {
	open   int           // attempts under way
	failed bool          // one failed, and nothing came since
	from   time.Duration // since when nothing came
	until  time.Duration // when the last attempt failed
}

func (n *need) begin(now time.Duration) {
	if n.open == 0 && (!n.failed || now-n.until > forgetAfter) {
		n.failed, n.from = false, now
	}
	n.open++
}

func (n *need) progress(now time.Duration) { n.failed, n.from = false, now }

// unmet is for how long attempts have been fruitless. What nobody tries any more
// counts until the last try failed, so that one failure alone is no long one.
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
