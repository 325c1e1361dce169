package leader

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/rpc"
)

// A store that left an outcome unknown is left alone for a moment, and longer each
// time that it does not answer.
const (
	doubtFirstPause = time.Second
	doubtLastPause  = 30 * time.Second
)

// doubt asks settleDoubts to find out what the newest versions are.
func (t *Term) doubt() {
	select {
	case t.doubts <- struct{}{}:
	default: // it is asked already
	}
}

// settleDoubts ends what is not known of groups/ and applied/, so that the effect
// of a write whose outcome is unknown waits for nobody's next edit, and comes
// while this term lasts or never. There is one of it in a term, however many
// writes end unknown.
func (t *Term) settleDoubts() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.doubts:
		}
		for pause := doubtFirstPause; ; pause = min(2*pause, doubtLastPause) {
			if rpc.Sleep(t.ctx, pause+t.cfg.Jitter(pause/4)) != nil {
				return
			}
			select {
			case <-t.doubts: // this try is for it too
			default:
			}
			if t.settle() == nil {
				break
			}
		}
	}
}

// settle reads what is in doubt, and writes it: the write of unknown outcome either
// is there by then and is gone by, or can't land any more. Groups that can't be read
// are looked at again like a store that does not answer.
func (t *Term) settle() error {
	if err := t.edit(t.ctx, func(d config.Dynamic) (config.Dynamic, error) { return d, nil }); err != nil {
		return err
	}
	return t.acceptLate()
}

// edit changes the dynamic groups, durably, while the term lasts.
func (t *Term) edit(ctx context.Context, change func(config.Dynamic) (config.Dynamic, error)) error {
	return t.writes.do(ctx, func(ctx context.Context) error { return t.wanted.edit(ctx, t.fence.Check, change) })
}
