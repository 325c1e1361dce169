package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// Timing is the timing of the election.
type Timing struct {
	RenewInterval time.Duration // interval of renewals; default in a shard's config: 10 s
	LeaseDuration time.Duration // how long standbys wait for a renewal; 30 s
	FenceWindow   time.Duration // how long a renewal lets the leader act; 1 s
	GiveUp        time.Duration // how long the leader may lack what it needs before it asks standbys; 30 s; 0: never
}

// Validate returns an error that names the invalid setting.
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

// onRecord returns the part of t that is in the record.
func (t Timing) onRecord() Timing {
	t.GiveUp = 0
	return t
}

// Config is the configuration of an Elector.
type Config struct {
	Store  object.Store
	Key    string // of the record, leader/{shard}.json
	Holder string // unique per start of a process
	Addrs  Addrs
	Timing Timing

	// Servers returns the names and addresses of the shard's servers that this one knows,
	// for each write of the record; those beyond 32 KiB are left out. Nil: none.
	Servers func() []string

	// FirstEpoch returns 1 + the highest epoch in any record. It is called only if there is no
	// election record.
	FirstEpoch func(context.Context) (uint64, error)

	// Probe checks whether this server can do what a leader does apart from the election. It is
	// called on a standby when the leader can't act. Nil: it always can.
	Probe func(context.Context) error
	// Prepare is called whenever this server starts to take the record, and may do in the time of
	// that write what makes a term start sooner. Its context ends with Run; nothing waits for it,
	// except the end of Run. Nil: nothing.
	Prepare func(context.Context)
	// Needs records the term's attempts. Nil: only the fence's are recorded.
	Needs *Needs

	Peers  Dialer                                // nil: no peers, standbys poll the store
	Clock  Clock                                 // nil: SystemClock
	Jitter func(max time.Duration) time.Duration // nil: none; else uniform in [0, max)
	Logger *slog.Logger                          // nil: discard
}

// Validate returns an error for a missing or invalid field.
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
