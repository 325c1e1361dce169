package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// Timing is how often a leader renews, how long others leave it alone, and how
// long one renewal lets it act.
type Timing struct {
	RenewInterval time.Duration // default in a shard's config: 10 s
	LeaseDuration time.Duration // 30 s
	FenceWindow   time.Duration // 1 s
	GiveUp        time.Duration // 30 s: without what it needs for this long, a leader asks others; 0: never
}

// Validate reports what is wrong with t, naming the setting.
func (t Timing) Validate() error {
	switch {
	case t.RenewInterval <= 0:
		return fmt.Errorf("renew_interval: %s is not above 0", t.RenewInterval)
	case t.LeaseDuration > maxDuration:
		return fmt.Errorf("lease_duration: %s is above %s", t.LeaseDuration, maxDuration)
	case t.LeaseDuration < 2*t.RenewInterval:
		return fmt.Errorf("lease_duration: %s is below twice the renew_interval of %s", t.LeaseDuration, t.RenewInterval)
	case t.FenceWindow <= 0:
		return fmt.Errorf("fence_window: %s is not above 0", t.FenceWindow)
	case t.FenceWindow >= t.LeaseDuration/4:
		return fmt.Errorf("fence_window: %s is not below a quarter of the lease_duration of %s", t.FenceWindow, t.LeaseDuration)
	case t.GiveUp < 0:
		return fmt.Errorf("give_up: %s is below 0", t.GiveUp)
	}
	return nil
}

// onRecord is the part of t that the record speaks of.
func (t Timing) onRecord() Timing {
	t.GiveUp = 0
	return t
}

// Config is what an Elector needs.
type Config struct {
	Store  object.Store
	Key    string // of the record, leader/{shard}.json
	Holder string // unique per start of a process
	Addrs  Addrs
	Timing Timing

	// FirstEpoch returns 1 + the highest epoch found in any instance record. It
	// is called only when there is no election record.
	FirstEpoch func(context.Context) (uint64, error)

	// Probe reports whether this server can do what a leader does outside of the
	// election: it is called on a standby when the leader can't act. Nil: it can.
	Probe func(context.Context) error
	// Needs is what attempts of the term are noted in. Nil: only the fence's are.
	Needs *Needs

	Peers  Dialer                                // nil: no peers, standbys poll the store
	Clock  Clock                                 // nil: SystemClock
	Jitter func(max time.Duration) time.Duration // nil: none; else uniform in [0, max)
	Logger *slog.Logger                          // nil: discard
}

// Validate reports what is missing or out of range.
func (c Config) Validate() error {
	switch {
	case c.Store == nil:
		return errors.New("election config: Store is missing")
	case c.Key == "":
		return errors.New("election config: Key is missing")
	case c.Holder == "" || len(c.Holder) > maxHolder:
		return fmt.Errorf("election config: Holder %.80q is not a name of 1 to %d characters", c.Holder, maxHolder)
	case c.FirstEpoch == nil:
		return errors.New("election config: FirstEpoch is missing")
	}
	if err := c.Timing.Validate(); err != nil {
		return fmt.Errorf("election config: %w", err)
	}
	return nil
}
