package leader

import (
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// addressRetry is how soon the leader's address is tried for again.
const addressRetry = 5 * time.Second

// holdAddress takes the leader's address by force, and again whenever it turns
// out to be elsewhere, if the provider has one to move.
func (t *Term) holdAddress() {
	network, ok := provider.LeaderNetworkOf(t.cfg.Provider)
	if !ok {
		return
	}
	ctx := provider.WithGuard(t.ctx, t.cfg.Fence.Check)
	for {
		wait := time.Duration(t.config.shard().Server.GarbageCollection.Interval)
		held, err := network.Check(ctx)
		if err == nil && !held {
			err = network.Assign(ctx)
		}
		if err != nil && ctx.Err() == nil {
			t.cfg.Logger.Error("can't take the leader's address", slog.Any("error", err))
			wait = min(wait, addressRetry)
		}
		if retry.Wait(ctx, wait) != nil {
			return
		}
	}
}
