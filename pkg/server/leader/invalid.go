package leader

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
)

// ReasonConfig is the reason of problems with the static config.
const ReasonConfig = "ConfigInvalid"

// ConfigReminder is how often is told that config/ can't run, while that lasts. A
// shard's trouble is taken for over when nothing was heard of it for longer.
const ConfigReminder = shardTroubleLife - time.Minute

// tellOfConfig says again and again that config/ can't run while the last accepted
// one does, and looks whether that is still so.
func (t *Term) tellOfConfig() {
	for {
		t.tellOfInvalidConfig()
		if rpc.Sleep(t.ctx, t.cfg.ConfigLook) != nil {
			return
		}
		if t.static.now().fromApplied {
			t.lookAgain()
		}
	}
}

// tellOfInvalidConfig reports it when config/ can't run.
func (t *Term) tellOfInvalidConfig() {
	c := t.static.now()
	if !c.fromApplied {
		return
	}
	t.troubles.report(fleet.Problem{
		At: t.cfg.Now(), Reason: ReasonConfig,
		Message: fmt.Sprintf("%s can't run, the last accepted config does: %.1000s", ConfigKey(t.cfg.Static.Shard), c.problems.Error()),
	})
}

// lookAgain reads config/ that could not run. One that was mended runs only when
// somebody asks for a refresh; one that is what runs is no trouble any more.
func (t *Term) lookAgain() {
	release, err := t.beginRefresh(t.ctx)
	if err != nil {
		return
	}
	defer release()
	now := t.static.now()
	o, err := t.readText(t.ctx)
	if !now.fromApplied || (err != nil && !errors.Is(err, object.ErrNotFound)) {
		return
	}
	if _, err = t.parseText(o, err); err == nil && bytes.Equal(o.Body, now.body) {
		now.info, now.fromApplied, now.problems = o.Info, false, nil
		t.static.swap(now)
		t.troubles.over(ReasonConfig)
		return
	}
	now.info = o.Info
	if now.problems = nil; err == nil {
		now.problems = config.Problems{{Message: "it is valid now, and waits for a refresh"}}
	} else {
		now.problems = problemsOf(err)
	}
	t.static.swap(now)
}

// over drops the shard's problem if it is of that reason.
func (t *troubles) over(reason string) {
	t.mu.Lock()
	last, ok := t.last[fleet.GroupKey{}]
	mine := ok && last.Reason == reason
	if mine {
		delete(t.last, fleet.GroupKey{})
	}
	t.mu.Unlock()
	if mine {
		t.told(fleet.GroupKey{})
	}
}
