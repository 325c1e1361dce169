package election

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// handClock is set by hand.
type handClock struct{ mono time.Duration }

func (c *handClock) Now() Moment { return Moment{Mono: c.mono, Wall: time.Unix(0, 0).Add(c.mono)} }

// TestNeeds tells what is missing from what was tried, second by second.
func TestNeeds(t *testing.T) {
	failed := errors.New("no route to host")
	type step struct {
		at   int // seconds
		what string
		err  error
	}
	begin := func(at int) step { return step{at: at, what: "begin"} }
	page := func(at int) step { return step{at: at, what: "page"} }
	end := func(at int, err error) step { return step{at: at, what: "end", err: err} }
	for name, c := range map[string]struct {
		steps []step
		at    int
		want  time.Duration
	}{
		"nothing was tried":          {nil, 3600, 0},
		"one try hangs":              {[]step{begin(10)}, 50, 40 * time.Second},
		"one try succeeded":          {[]step{begin(10), end(20, nil)}, 3600, 0},
		"one try failed long ago":    {[]step{begin(10), end(11, failed)}, 3600, time.Second},
		"tries failed until now":     {[]step{begin(10), end(11, failed), begin(25), end(45, failed)}, 3600, 35 * time.Second},
		"a try after failures hangs": {[]step{begin(10), end(11, failed), begin(25)}, 60, 50 * time.Second},
		"success ends it":            {[]step{begin(10), end(11, failed), begin(45), end(50, nil)}, 3600, 0},
		"a page came":                {[]step{begin(10), page(30), page(50)}, 65, 15 * time.Second},
		"pages came, then it failed": {[]step{begin(10), page(30), end(40, failed)}, 3600, 10 * time.Second},
		"called off":                 {[]step{begin(10), end(60, fmt.Errorf("list: %w", context.Canceled))}, 3600, 0},
		"called off between failures": {
			[]step{begin(0), end(1, failed), begin(9), end(9, context.Canceled), begin(20), end(31, failed)}, 99, 31 * time.Second,
		},
		"the term is over": {[]step{begin(10), end(60, ErrNotLeader)}, 3600, 0},
		"too late to act":  {[]step{begin(10), end(60, ErrUnfenced)}, 3600, 50 * time.Second},
		"two failures far apart": {
			[]step{begin(0), end(1, object.ErrUnknown), begin(1000), end(1001, object.ErrUnknown)}, 1001, time.Second,
		},
		"two failures a backoff apart":       {[]step{begin(0), end(1, failed), begin(301), end(302, failed)}, 302, 302 * time.Second},
		"a second try while the first hangs": {[]step{begin(10), begin(30)}, 41, 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &handClock{}
			n := NewNeeds(clock)
			var try *Attempt
			for _, s := range c.steps {
				clock.mono = time.Duration(s.at) * time.Second
				switch s.what {
				case "begin":
					try = n.Start(NeedList)
				case "page":
					try.Progress()
				case "end":
					try.End(s.err)
				}
			}
			clock.mono = time.Duration(c.at) * time.Second
			got := n.longest()
			if got.For != c.want || (c.want > 0) != (got.Need == NeedList) {
				t.Errorf("%s for %s, want %s", got.Need, got.For, c.want)
			}
		})
	}
}

// TestTakeoverIsNamedLast: the need that a takeover fails for is more specific, even if it was
// unmet for slightly less long. A need met in between is not the cause.
func TestTakeoverIsNamedLast(t *testing.T) {
	failed := errors.New("no route to host")
	for name, c := range map[string]struct {
		others bool // other reads succeed
		want   Need
	}{
		"no read succeeds":   {false, NeedRead},
		"some reads succeed": {true, NeedTakeover},
	} {
		clock := &handClock{}
		n := NewNeeds(clock)
		for try := range 4 {
			if c.others {
				n.Start(NeedRead).End(nil)
			}
			n.Start(NeedRead).End(failed)
			clock.mono += time.Duration(try) * time.Millisecond
			n.Start(NeedTakeover).End(failed)
			clock.mono += 10 * time.Second
		}
		// The takeover counts from its first failure to its last.
		if got := n.longest(); got.Need != c.want || got.For != 30*time.Second+6*time.Millisecond {
			t.Errorf("%s: %s for %s, want %s", name, got.Need, got.For, c.want)
		}
	}
}

// TestNeedsOfATerm: attempts of an earlier term are ignored, and the need that has been unmet
// for longest is returned.
func TestNeedsOfATerm(t *testing.T) {
	clock := &handClock{}
	n := NewNeeds(clock)
	old := n.Start(NeedRead)
	clock.mono = time.Minute
	n.reset()
	if got := n.longest(); got != (Lack{}) {
		t.Errorf("another term begins with %s for %s", got.Need, got.For)
	}
	list := n.Start(NeedList)
	clock.mono += 5 * time.Second
	n.Start(NeedFence)
	clock.mono += 5 * time.Second
	old.End(errors.New("late"))
	if got := n.longest(); got != (Lack{NeedList, 10 * time.Second}) {
		t.Errorf("%s for %s, want the list for 10s", got.Need, got.For)
	}
	list.End(nil)
	if got := n.longest(); got != (Lack{NeedFence, 5 * time.Second}) {
		t.Errorf("%s for %s, want the fence for 5s", got.Need, got.For)
	}
	n.met(NeedFence)
	if got := n.longest(); got != (Lack{}) {
		t.Errorf("%s for %s, want nothing", got.Need, got.For)
	}
}
