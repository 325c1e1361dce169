package leader

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

// ReasonClock is the reason of the problems that the clock of this server differs from that of object
// storage or of an instance.
const ReasonClock = "ClockDiffers"

const (
	// clockApart is a difference between two clocks that is reported, until it is at most clockNear.
	clockApart = time.Minute
	clockNear  = 30 * time.Second
	// clockInterval is how often the store's clock is compared, which takes three requests, and
	// clockAgain how often while it differs or is unknown.
	clockInterval = 2 * time.Hour
	clockAgain    = 10 * time.Minute
	// clockGap is the least time between two comparisons, and between two problems of one instance.
	clockGap = time.Minute
)

// clocks compares the clocks of a term's host, store and instances.
type clocks struct {
	*Term

	asked chan struct{} // capacity 1: an instance's clock differs, so the store's is compared

	mu       sync.Mutex
	wrong    bool      // this host's clock differs from the store's, so instances are not blamed
	agreedAt time.Time // when it last agreed
	// suspects are the instances whose clock differs.
	suspects map[fleet.InstanceID]suspect
}

// suspect is an instance whose clock differs, or did a moment ago.
type suspect struct {
	since time.Time // when the first report showed it; zero: its clock is right
	told  bool
	at    time.Time // when it was last told, or solved
}

func newClocks(t *Term) *clocks {
	return &clocks{Term: t, asked: make(chan struct{}, 1), suspects: map[fleet.InstanceID]suspect{}}
}

// run compares this host's clock to the store's until ctx ends: soon, and then periodically.
func (c *clocks) run(ctx context.Context) {
	for wait := time.Duration(0); retry.Wait(ctx, clockGap) == nil && c.await(ctx, wait-clockGap); {
		ahead, err := c.store(ctx)
		switch {
		case err != nil: // what was found before stays
			if wait = clockAgain; ctx.Err() == nil {
				c.cfg.Logger.Warn("can't compare this server's clock to that of object storage", slog.Any("error", err))
			}
		case ahead.Abs() > clockApart:
			c.differs(ahead)
			wait = clockAgain
		default:
			c.agrees()
			wait = clockInterval
		}
	}
}

// await waits for a time, or until an instance's clock differs. It reports whether ctx goes on.
func (c *clocks) await(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(max(0, most))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.asked:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// differs reports that this host's clock differs from the store's, until it agrees.
func (c *clocks) differs(ahead time.Duration) {
	c.mu.Lock()
	told := c.wrong
	c.wrong = true
	c.mu.Unlock()
	if !told {
		c.Report(fleet.Problem{
			At: c.cfg.Now(), Reason: ReasonClock,
			Message: fmt.Sprintf("the clock of object storage is %s this server's: synchronize this host's clock", aheadOf(ahead)),
		})
	}
}

func (c *clocks) agrees() {
	c.mu.Lock()
	c.wrong, c.agreedAt = false, time.Now()
	c.mu.Unlock()
	c.Over(ReasonClock)
}

// store returns how far the store's clock is ahead.
func (c *clocks) store(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.requestTimeout())
	defer cancel()
	id, err := fleet.NewID("prb", c.cfg.Now(), c.cfg.Random)
	if err != nil {
		return 0, err
	}
	return object.ClockAhead(ctx, c.cfg.Store, string(id), c.cfg.Now)
}

// heard compares the clock of an instance, from which a report has just arrived.
func (c *clocks) heard(id fleet.InstanceID, ahead time.Duration) {
	was, is, ask := c.judge(id, ahead)
	switch {
	case is.told && !was.told:
		c.report(id, ReasonClock, fmt.Sprintf("the clock of the instance is %s this server's: synchronize both", aheadOf(ahead)))
	case was.told && !is.told:
		c.solved(id, ReasonClock)
	case ask:
		select {
		case c.asked <- struct{}{}:
		default: // asked already
		}
	}
}

// judge returns what was known of an instance's clock, what is, and whether this host's has to be
// compared first. Of an instance that ends nothing is known.
func (c *clocks) judge(id fleet.InstanceID, ahead time.Duration) (was, is suspect, ask bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.suspects[id]
	if !known && ahead.Abs() <= clockApart {
		return was, was, false
	}
	if i, ok := c.records.Get(id); !ok || i.Phase.Ending() {
		delete(c.suspects, id)
		return suspect{}, suspect{}, false
	}
	is = was
	is.judge(ahead, c.wrong, c.agreedAt, time.Now())
	if c.suspects[id] = is; is.since.IsZero() && !is.told {
		delete(c.suspects, id)
	}
	return was, is, is.since.After(c.agreedAt) && !c.wrong
}

// judge decides by a report whether an instance's clock is to blame: only if this host's agreed with
// the store's since the first report that showed the difference.
func (s *suspect) judge(ahead time.Duration, wrong bool, agreedAt, now time.Time) {
	switch {
	case ahead.Abs() > clockApart && s.since.IsZero():
		s.since = now
	case ahead.Abs() <= clockNear:
		s.since = time.Time{}
	}
	told := !s.since.IsZero() && !wrong && (s.told || agreedAt.After(s.since))
	if told != s.told && now.Sub(s.at) >= clockGap {
		s.told, s.at = told, now
	}
}

// forget drops an instance that ends.
func (c *clocks) forget(id fleet.InstanceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.suspects, id)
}

// aheadOf says how far a clock is ahead or behind, for the words of another clock to follow.
func aheadOf(d time.Duration) string {
	if d < 0 {
		return fmt.Sprintf("%s behind", -d.Round(time.Second))
	}
	return fmt.Sprintf("%s ahead of", d.Round(time.Second))
}
