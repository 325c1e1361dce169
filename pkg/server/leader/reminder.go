package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
)

// ReasonConfig is the reason of problems with the static config.
const ReasonConfig = "ConfigInvalid"

// ConfigReminder is how often is told that config/ can't run, while that lasts. A
// problem of the shard is taken for over when nothing was heard of it for longer.
const ConfigReminder = shardProblemLife - time.Minute

// remind says again and again that config/ can't run while the last accepted one
// does, and looks whether that is still so, until ctx ends.
func (r *refresher) remind(ctx context.Context) {
	for {
		r.tellOfInvalid()
		if retry.Wait(ctx, r.cfg.ConfigLook) != nil {
			return
		}
		if r.config.now().fromApplied {
			r.lookAgain(ctx)
		}
	}
}

// tellOfInvalid reports it when config/ can't run.
func (r *refresher) tellOfInvalid() {
	c := r.config.now()
	if !c.fromApplied {
		return
	}
	r.problems.report(fleet.Problem{
		At: r.cfg.Now(), Reason: ReasonConfig,
		Message: fmt.Sprintf("%s can't run, the last accepted config does: %.1000s", ConfigKey(r.cfg.Static.Shard), c.problems.Error()),
	})
}

// lookAgain reads config/ that could not run. One that was mended runs only when
// somebody asks for a refresh; one that is what runs is no problem any more.
func (r *refresher) lookAgain(ctx context.Context) {
	release, err := r.begin(ctx)
	if err != nil {
		return
	}
	defer release()
	now := r.config.now()
	o, _, err := r.read(ctx)
	var invalid config.Problems
	switch unread := err != nil && !errors.As(err, &invalid); {
	case !now.fromApplied || unread:
		return
	case err == nil && bytes.Equal(o.Body, now.body):
		now.info, now.fromApplied, now.problems = o.Info, false, nil
		r.config.swap(now)
		r.problems.over(ReasonConfig)
		return
	case err == nil:
		invalid = config.Problems{{Message: "it is valid now, and waits for a refresh"}}
	}
	now.info, now.problems = o.Info, invalid
	r.config.swap(now)
}
