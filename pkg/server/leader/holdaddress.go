package leader

import (
	"context"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// holdAddress takes over the leader's address, and again whenever it moves away. It is a no-op
// if the provider has no such address.
func (t *Term) holdAddress(ctx context.Context) {
	network, ok := provider.LeaderNetworkOf(t.cfg.Provider)
	if !ok {
		return
	}
	ctx = provider.WithGuard(ctx, t.cfg.Fence.Check)
	pace := newAddressPace(t.cfg.Now())
	for first := true; ; first = false {
		found, err := secureAddress(ctx, network)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.cfg.Logger.Error("can't take over the leader's address", slog.Any("error", err))
		case found == addressMoved && !first:
			t.cfg.Logger.Warn("the leader's address had moved away from this server, and was taken back")
		}
		sweep := time.Duration(t.config.shard().Server.GarbageCollection.Interval)
		if retry.Wait(ctx, pace.next(found, t.cfg.Now(), sweep)) != nil {
			return
		}
	}
}

// secureAddress checks once whether this server holds the address, and takes it over if not.
func secureAddress(ctx context.Context, network provider.LeaderNetwork) (addressFound, error) {
	held, err := network.Check(ctx)
	if err == nil && held {
		return addressHeld, nil
	}
	if err == nil {
		err = network.Assign(ctx)
	}
	if err != nil {
		return addressFailed, err
	}
	return addressMoved, nil
}

// addressFound is the result of one check.
type addressFound int

const (
	addressHeld   addressFound = iota
	addressMoved               // it was elsewhere, and was moved to this server
	addressFailed              // the check or the move failed
)

const (
	// addressRetry is the pause after a check or a move that failed.
	addressRetry = 5 * time.Second
	// addressLook is the pause between two checks while the address is watched.
	addressLook = 3 * time.Second
	// addressWatch is how long the address is watched after the term began, and after each
	// move. A call that a former leader was permitted to make may still land: one from a
	// suspended machine lands as long as the provider accepts its signature, which is 5
	// minutes on AWS.
	addressWatch = 5 * time.Minute
	// addressAgain is how many moves in one watch are each followed by an early check. More
	// moves than that are not caused by late calls.
	addressAgain = 3
)

// addressPace decides when the address is checked next. In a term without trouble it costs
// addressWatch / addressLook = 100 checks more than checking at the sweep interval.
type addressPace struct {
	since time.Time // start of the watch
	moves int       // during the watch
}

func newAddressPace(now time.Time) *addressPace { return &addressPace{since: now} }

// next returns the pause before the next check. sweep is the regular and the longest pause.
// Moves beyond addressAgain double the pause, so that two servers configured with the same
// address do not flood the provider.
func (p *addressPace) next(found addressFound, now time.Time, sweep time.Duration) time.Duration {
	switch {
	case found == addressFailed:
		return min(addressRetry, sweep)
	case found == addressMoved:
		p.since, p.moves = now, p.moves+1
	case now.Sub(p.since) >= addressWatch:
		p.moves = min(p.moves, 1) // keep at most one: further moves are a new incident
		return sweep
	}
	pause := addressLook
	for range p.moves - addressAgain {
		if pause *= 2; pause >= sweep {
			break
		}
	}
	return min(pause, sweep)
}
