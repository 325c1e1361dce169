package asg

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/awscall"
)

// inactiveFor is how long a hook is asked for that is not active. AWS says so of one that
// is completed, and of one whose time is over or whose name is wrong, but also when a
// call comes before the group has begun to wait.
const inactiveFor = 15 * time.Minute

// errInactive says that the hook may still become active.
var errInactive = errors.New("the hook is not active yet")

// complete completes the hook. One that stays inactive is done: nothing is left to do
// for it here.
func (w *watch) complete(ctx context.Context) error {
	err := w.send(ctx, "CompleteLifecycleAction", url.Values{
		"AutoScalingGroupName": {w.cfg.Group}, "LifecycleHookName": {w.cfg.Hook}, "InstanceId": {w.instance},
		"LifecycleActionResult": {"CONTINUE"},
	})
	switch {
	case err == nil:
		w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "hook completed", slog.String("hook", w.cfg.Hook))
	case inactive(err):
		err = w.notActive(ctx, time.Now())
	}
	return err
}

func inactive(err error) bool {
	var refused *awscall.Error
	return errors.As(err, &refused) && refused.Code == "ValidationError" && strings.Contains(refused.Message, "No active Lifecycle Action")
}

func (w *watch) notActive(ctx context.Context, now time.Time) error {
	hook := slog.String("hook", w.cfg.Hook)
	if w.inactive.IsZero() {
		w.inactive = now
		w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "hook is not active: asking on", hook, slog.Duration("for", inactiveFor))
	}
	if now.Sub(w.inactive) < inactiveFor {
		return errInactive
	}
	w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn,
		"hook was not completed now: it was before, or its time is over, or the group has none of this name", hook)
	return nil
}
