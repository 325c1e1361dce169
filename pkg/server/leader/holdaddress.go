package leader

import (
	"context"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// holdAddress takes the leader's address by force, and again whenever it turns
// out to be elsewhere, if the provider has one to move.
func (t *Term) holdAddress() {
	network, ok := provider.LeaderNetworkOf(t.cfg.Provider)
	if !ok {
		return
	}
	ctx := provider.WithGuard(t.ctx, t.cfg.Fence.Check)
	pace := newAddressPace(t.cfg.Now())
	for first := true; ; first = false {
		found, err := secureAddress(ctx, network)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.cfg.Logger.Error("can't take the leader's address", slog.Any("error", err))
		case found == addressMoved && !first:
			t.cfg.Logger.Warn("the leader's address was not on this server any more, and has been taken back")
		}
		sweep := time.Duration(t.config.shard().Server.GarbageCollection.Interval)
		if retry.Wait(ctx, pace.next(found, t.cfg.Now(), sweep)) != nil {
			return
		}
	}
}

// secureAddress checks once who holds the address, and takes it unless this server does.
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
	addressMoved               // it was elsewhere, and is here now
	addressFailed              // where it is could not be found out, or changed
)

const (
	// addressRetry is the pause after a check or a move that failed.
	addressRetry = 5 * time.Second
	// addressLook is the pause between two checks while the address is watched.
	addressLook = 3 * time.Second
	// addressWatch is how long the address is watched after the term began, and after each
	// move. A call that a former leader was allowed to make may still land: from a machine
	// that was suspended as late as the provider accepts its signature, on AWS 5 minutes.
	addressWatch = 5 * time.Minute
	// addressAgain is how many moves in one watch are followed by a check as soon as
	// possible. What takes the address away more often is no late call.
	addressAgain = 3
)

// addressPace decides when the address is checked next. A term in which nothing goes wrong
// costs addressWatch / addressLook = 100 checks more than the sweep's pace would.
type addressPace struct {
	since time.Time // when the watch began
	moves int       // in it
}

func newAddressPace(now time.Time) *addressPace { return &addressPace{since: now} }

// next returns the pause before the next check. sweep is the pause when nothing is to be
// feared, and the longest. Moves beyond addressAgain double it, so that two servers with
// one address do not keep the provider busy.
func (p *addressPace) next(found addressFound, now time.Time, sweep time.Duration) time.Duration {
	switch {
	case found == addressFailed:
		return min(addressRetry, sweep)
	case found == addressMoved:
		p.since, p.moves = now, p.moves+1
	case now.Sub(p.since) >= addressWatch:
		p.moves = min(p.moves, 1) // one, as a move from now on is news
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
