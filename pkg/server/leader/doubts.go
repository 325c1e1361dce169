package leader

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// doubts are whether it is not known what the newest versions of groups/ and
// applied/ are. The effect of a write whose outcome is unknown so waits for nobody's
// next edit, and comes while this term lasts or never.
type doubts struct{ asked chan struct{} }

func newDoubts() *doubts { return &doubts{asked: make(chan struct{}, 1)} }

// ask has settle find out what the newest versions are.
func (d *doubts) ask() {
	select {
	case d.asked <- struct{}{}:
	default: // it is asked already
	}
}

// keepSettled calls settle until ctx ends, once for however many writes end unknown,
// and again until it succeeds. A store that left an outcome unknown is left alone for
// a moment, and longer each time that it does not answer.
func (d *doubts) keepSettled(ctx context.Context, settle func() error, random func() float64) {
	pauses := retry.Backoff{First: time.Second, Limit: 30 * time.Second, Least: time.Second}
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.asked:
		}
		for n := 1; ; n++ {
			if retry.Wait(ctx, pauses.Draw(n, random)) != nil {
				return
			}
			select {
			case <-d.asked: // this try is for it too
			default:
			}
			if settle() == nil {
				break
			}
		}
	}
}

// settle reads what is in doubt, and writes it: the write of unknown outcome either
// is there by then and is gone by, or can't land any more. Groups that can't be read
// are looked at again like a store that does not answer.
func (t *Term) settle() error {
	if err := t.groups.settle(t.ctx); err != nil {
		return err
	}
	return t.refresh.late()
}
